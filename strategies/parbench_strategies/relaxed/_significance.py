"""Significance is how much a rank's gradient has changed: the relative change of its smoothed squared norm.

E_t = weighted mean of the squared norms of the last W steps, the weight falling by 1 % with each step of age
Delta_t = |E_t - E_(t-1)| / E_(t-1)

The definition is section III of Tyagi and Swany (2023), https://arxiv.org/abs/2307.07950; weights and window as in the
authors' code, https://github.com/sahiltyagi4/SelSync, which takes sums of layers' norms instead of the squared norm.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, final

# Weight of a step, relative to the next one.
FADING: Final = 0.99


@final
class Significance:
    """Watches the gradients of one rank.

    Args:
        window: steps that are smoothed over.
    """

    def __init__(self, window: int) -> None:
        self._squares: deque[float] = deque(maxlen=window)
        self._smoothed = math.nan

    def of(self, squared_norm: float) -> float:
        """Return Delta of a step; infinite for the first, and where a norm is not finite."""
        self._squares.append(squared_norm)
        weights = [FADING**age for age in range(len(self._squares))][::-1]
        weighted = (weight * square for weight, square in zip(weights, self._squares, strict=True))
        before, self._smoothed = self._smoothed, math.fsum(weighted) / math.fsum(weights)
        if before == 0:
            return math.inf if self._smoothed else 0.0
        change = abs(self._smoothed - before) / before
        return change if math.isfinite(change) else math.inf
