"""Relaxed strategies: every rank holds the whole model and trains by itself for a while before ranks are made equal."""
