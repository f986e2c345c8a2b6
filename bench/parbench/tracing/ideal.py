"""Ideal bytes are what the ideal algorithm of a collective sends from one rank, and what its buffer held, from them."""

from __future__ import annotations

from fractions import Fraction

from parbench.network.collectives import bus_factor

# The root alone sends in some, and all but the root in others; whoever sends, sends the buffer once.
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_NOTHING = frozenset({"recv", "barrier"})


def sent_bytes(op: str, size: int, ranks: int) -> Fraction | None:
    """Return what one rank sends, as `parbench.counting` counts it.

    Args:
        op: the collective.
        size: bytes of the whole buffer of one rank: n parts where it has parts.
        ranks: how many take part.

    Returns:
        None for a collective with a root: whether this rank is it cannot be seen in the buffer.
    """
    if op in _NOTHING:
        return Fraction(0)
    if op in _ROOTED:
        return None
    return bus_factor(op, ranks) * size


def buffer_bytes(op: str, sent: float, ranks: int) -> float | None:
    """Return the bytes of the whole buffer, from what a rank that does send sends; None where it sends nothing."""
    if sent <= 0:
        return None
    if op == "scatter":  # the root keeps its own part
        return sent * ranks / (ranks - 1)
    return sent / float(bus_factor(op, ranks))
