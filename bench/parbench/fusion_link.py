"""A Link says how long one exchange of so many bytes takes: from two numbers, or from points that were measured."""

from __future__ import annotations

import abc
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

Point = tuple[float, float]
_LINE = 2  # points that determine one


class Link(abc.ABC):
    """How long an exchange takes; a larger message never takes less."""

    @abc.abstractmethod
    def seconds(self, message_bytes: int) -> float:
        """Return the duration of one exchange."""

    @abc.abstractmethod
    def fitted(self) -> AlphaBeta:
        """Return the start-up time and the time per byte that come nearest to it."""


@final
@dataclass(frozen=True, slots=True)
class AlphaBeta(Link):
    """Takes a start-up time for every message and a time for every byte: T(m) = alpha + beta m.

    Attributes:
        alpha_s: start-up time, 0 or more.
        beta_s_per_byte: time per byte, 0 or more.

    Raises:
        ValueError: one is negative, infinite or not a number.
    """

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        for what, value in (("alpha_s", self.alpha_s), ("beta_s_per_byte", self.beta_s_per_byte)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{what} must be a finite number of at least 0, given {value!r}")

    def seconds(self, message_bytes: int) -> float:
        return self.alpha_s + self.beta_s_per_byte * message_bytes

    def fitted(self) -> AlphaBeta:
        return self


@final
class Measured(Link):
    """Takes what was measured, on straight lines between the points.

    Noise can make a larger message seem faster. Such neighbours are given their mean, the nearest durations that never
    fall (isotonic regression). Below the smallest point an exchange takes what that takes; beyond the largest one, the
    last line goes on.

    Args:
        points: bytes and seconds of one exchange, in any order; each size once.

    Raises:
        ValueError: fewer than two points, a size twice, or a number that no measurement gives.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        self.points: tuple[Point, ...] = tuple(sorted(points))
        if len(self.points) < _LINE:
            raise ValueError(f"a measured link needs at least {_LINE} points, given {len(self.points)}")
        for size, duration in self.points:
            if not (math.isfinite(size) and size >= 0 and math.isfinite(duration) and duration > 0):
                raise ValueError(f"a point is bytes of at least 0 and seconds above 0, given ({size!r}, {duration!r})")
        self._sizes = [size for size, _ in self.points]
        if len(set(self._sizes)) < len(self._sizes):
            raise ValueError("a measured link takes each size once; give the median of its durations")
        self._seconds = _never_falling([duration for _, duration in self.points])

    def __repr__(self) -> str:
        return f"Measured({list(self.points)})"

    def seconds(self, message_bytes: int) -> float:
        right = bisect_left(self._sizes, message_bytes)
        if right == 0:
            return self._seconds[0]
        left = min(right, len(self._sizes) - 1) - 1
        x0, x1, y0, y1 = *self._sizes[left : left + 2], *self._seconds[left : left + 2]
        value = y0 + (y1 - y0) * ((message_bytes - x0) / (x1 - x0))
        return max(value, y1) if right == len(self._sizes) else min(value, y1)  # rounding must not make it fall

    def fitted(self) -> AlphaBeta:
        """Return the least-squares line through the points; where one of its numbers is negative, 0 and the best other.

        The largest messages decide, as in any such fit: measure small ones too, and judge alpha with care.
        """
        durations = [duration for _, duration in self.points]
        beta, alpha = statistics.linear_regression(self._sizes, durations)
        if beta < 0:
            return AlphaBeta(statistics.fmean(durations), 0.0)
        if alpha < 0:
            return AlphaBeta(0.0, statistics.linear_regression(self._sizes, durations, proportional=True).slope)
        return AlphaBeta(alpha, beta)


def _never_falling(values: Sequence[float]) -> list[float]:
    """Return the nearest values, in squares, that never fall: neighbours that do are pooled."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]
