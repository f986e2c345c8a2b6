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


def warmed(ratio: float, step: int, warmup_steps: int) -> float:
    """Return the share that is sent in a step: a quarter at first, a quarter of that after each quarter of warm-up.

    DGC (Lin et al., 2018, section 3.3) goes down so over four epochs; a harness counts steps.
    """
    if step >= warmup_steps:
        return ratio
    return max(ratio, math.pow(0.25, 1 + 4 * step / warmup_steps))


def checked_warmup(warmup_steps: int) -> int:
    """Return a number of steps.

    Raises:
        ValueError: it is none.
    """
    if warmup_steps < 0:
        raise ValueError(f"warmup_steps is how many steps send more than later ones, at least 0, got {warmup_steps}")
    return warmup_steps
