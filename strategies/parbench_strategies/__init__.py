"""Strategies: one way of spreading a job over ranks per file; the file name is the strategy's name."""
