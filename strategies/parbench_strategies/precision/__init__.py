"""Precision strategies: in which types a model is computed, kept and exchanged, around a strategy that spreads it."""
