"""Tensor-parallel strategies: every rank computes a part of each layer for the whole batch."""
