"""Hybrid strategies: families of parallelism composed on one mesh of ranks."""
