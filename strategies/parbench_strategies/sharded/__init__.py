"""Sharded strategies: ranks share parameters, gradients or optimizer state instead of repeating them."""
