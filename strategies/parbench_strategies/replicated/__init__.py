"""Replicated strategies: every rank holds the whole model and exchanges gradients."""
