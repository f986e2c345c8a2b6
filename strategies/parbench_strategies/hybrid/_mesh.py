"""A Mesh lays ranks out along named axes, the last one first: its neighbours are neighbours.

pp 2, dp 2, tp 2

          dp 0      dp 1
        tp 0   1  tp 0   1
pp 0       0   1     2   3
pp 1       4   5     6   7      rank 6 is pp 1, dp 1, tp 0; along dp it meets rank 4
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

_OFFERED = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """How many ranks there are along each axis.

    Attributes:
        sizes: axis -> ranks along it, outermost first.
    """

    sizes: Mapping[str, int]

    @property
    def world_size(self) -> int:
        """All ranks."""
        return math.prod(self.sizes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return axis -> place of a rank along it."""
        found: dict[str, int] = {}
        for axis, size in reversed(list(self.sizes.items())):
            rank, found[axis] = divmod(rank, size)
        return {axis: found[axis] for axis in self.sizes}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """Return the rank at some coordinates: the inverse of `coordinates`."""
        rank = 0
        for axis, size in self.sizes.items():
            rank = rank * size + coordinates[axis]
        return rank

    def along(self, rank: int, *axes: str) -> list[int]:
        """Return the ranks that stand where `rank` does on all axes but these, in ascending order."""
        here = self.coordinates(rank)
        lines = (range(size) if axis in axes else (here[axis],) for axis, size in self.sizes.items())
        return [self.rank(dict(zip(self.sizes, place, strict=True))) for place in itertools.product(*lines)]

    def misfit(self, world_size: int, order: Sequence[str]) -> str | None:
        """Return a sentence where so many ranks do not fill the mesh, or None.

        Args:
            world_size: ranks.
            order: the axes as users name them.
        """
        if self.world_size == world_size:
            return None
        given = [self.sizes[axis] for axis in order]
        nearest = sorted(_factors(world_size, len(order)), key=lambda choice: _distance(choice, given))[:_OFFERED]
        offered = "; ".join(_written(order, choice) for choice in nearest)
        return (
            f"{' x '.join(order)} = world size, but {' x '.join(map(str, given))} = {self.world_size} is not "
            f"{world_size}; nearest that are: {offered}"
        )

    def __str__(self) -> str:
        """Return the sizes, as in pp 2 x dp 2 x tp 1."""
        return " x ".join(f"{axis} {size}" for axis, size in self.sizes.items())


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as a product of so many."""
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factors(number // first, count - 1):
                yield (first, *rest)


def _distance(choice: Sequence[int], given: Sequence[int]) -> tuple[float, tuple[int, ...]]:
    """How often one has to double or halve to come from one to the other; larger first numbers where that is equal."""
    doublings = sum(abs(math.log2(a / b)) for a, b in zip(choice, given, strict=True))
    return round(doublings, 9), tuple(-size for size in choice)


def _written(order: Sequence[str], choice: Sequence[int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in zip(order, choice, strict=True))
