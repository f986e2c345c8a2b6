"""A split cuts a chain of blocks into stages, one after the other, so that the heaviest stage is as light as can be.

K blocks, S stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise


def balanced(weights: Sequence[float], stages: int) -> list[int]:
    """Return how many blocks each stage gets; every stage gets at least one.

    The largest sum of a stage is the least that is possible; of the splits that reach it, the one with the least sum of
    squares. Exact, by dynamic programming over (first block, stages left): O(K^2 S).

    Raises:
        ValueError: there are fewer blocks than stages.
    """
    count = len(weights)
    if stages < 1 or count < stages:
        raise ValueError(f"{count} blocks cannot be cut into {stages} stages of at least one block")
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)

    @cache
    def best(first: int, left: int) -> tuple[float, float, tuple[int, ...]]:
        if left == 1:
            load = sums[count] - sums[first]
            return load, load * load, (count - first,)
        options = []
        for stop in range(first + 1, count - left + 2):
            load = sums[stop] - sums[first]
            most, squares, sizes = best(stop, left - 1)
            options.append((max(load, most), squares + load * load, (stop - first, *sizes)))
        # Longer stages first where all else is equal: as the remainder of a division is usually given out.
        return min(options, key=lambda one: (one[0], one[1], tuple(-size for size in one[2])))

    return list(best(0, stages)[2])


def from_cuts(cuts: Sequence[int], blocks: int, stages: int) -> list[int]:
    """Return the blocks of each stage for cuts before the blocks with these numbers.

    Raises:
        ValueError: they do not make so many stages of at least one block.
    """
    edges = [0, *cuts, blocks]
    sizes = [stop - start for start, stop in pairwise(edges)]
    if len(sizes) != stages or min(sizes) < 1:
        raise ValueError(
            f"cuts={list(cuts)} must be {stages - 1} ascending numbers from 1 to {blocks - 1}: "
            f"{blocks} blocks make {stages} stages"
        )
    return sizes
