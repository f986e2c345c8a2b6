"""Fitting is how many micro-batches the memory of a rank takes, as DAPPLE's schedules are told: its D."""

from __future__ import annotations


def checked_fit(fit: int | None) -> int | None:
    """Return the number of micro-batches that fit, None for as many as are wanted.

    Raises:
        ValueError: not even one fits.
    """
    if fit is not None and fit < 1:
        raise ValueError(f"fit is the number of micro-batches that fit into memory, at least 1, given {fit}")
    return fit


def fitting(wanted: int, fit: int | None) -> int:
    """Return how many micro-batches to begin with: as many as wanted, where they fit."""
    return wanted if fit is None else min(wanted, fit)
