"""Tensor-parallel strategies: every rank of a group computes a part of each layer, for the same samples."""
