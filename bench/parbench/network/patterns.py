"""Patterns are the inputs of a collective that is checked, and what must come of them, computed without any collective.

Values are whole numbers from 0 to 3: their sums are exact in every type, in whatever order they are added.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# A prime: parts and blocks, whose sizes are round numbers, never look alike.
_PERIOD = 4093
# Below it sums stay exact in bfloat16, whose mantissa has 8 bits.
MOST_RANKS = 85


@cache
def _base(rank: int, salt: int) -> Ints:
    return np.random.default_rng([rank, salt]).integers(0, 4, _PERIOD)


def pattern(rank: int, numel: int, salt: int) -> Ints:
    """Return `numel` values that tell ranks, places and repetitions (`salt`) apart."""
    return np.resize(_base(rank, salt), numel)


def given(op: str, rank: int, ranks: int, numel: int, salt: int) -> Ints:
    """Return what `rank` puts in: its part of an all-gather, else the whole buffer of `numel` elements."""
    return pattern(rank, numel // ranks if op == "all_gather" else numel, salt)


def expected(op: str, rank: int, ranks: int, numel: int, salt: int) -> Ints:
    """Return what `rank` must get."""
    if op == "broadcast":
        return pattern(0, numel, salt)
    if op == "send_recv":
        return pattern((rank - 1) % ranks, numel, salt)
    if op == "all_gather":
        return np.concatenate([given(op, other, ranks, numel, salt) for other in range(ranks)])
    part = slice(rank * (numel // ranks), (rank + 1) * (numel // ranks))
    if op == "all_to_all":
        return np.concatenate([pattern(other, numel, salt)[part] for other in range(ranks)])
    total = pattern(0, numel, salt)
    for other in range(1, ranks):
        total = total + pattern(other, numel, salt)
    return total[part] if op == "reduce_scatter" else total
