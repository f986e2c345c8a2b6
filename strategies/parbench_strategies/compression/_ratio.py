"""A ratio is the share of a gradient's elements that is sent: above 0 and at most 1."""

from __future__ import annotations

import math


def checked_ratio(ratio: float) -> float:
    """Return a share of elements.

    Raises:
        ValueError: it is none.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio is the share of elements that is sent, above 0 and at most 1, got {ratio}")
    return ratio


def kept(elements: int, ratio: float) -> int:
    """Return how many of so many elements are sent: the share rounded up, so at least one of any."""
    # Not one more for what is rounding alone: 0.07 x 100 is 7.000000000000001.
    return min(elements, math.ceil(ratio * elements - 1e-9))
