"""Screening keeps from compression what it would spread: numbers that are not finite, and gradients that are too long.

A sum over a tensor, such as a scale, and the rest that error feedback keeps would carry one NaN to everything and on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from parbench_strategies.replicated._layout import Lane


@final
class Screen:
    """Looks at the gradients of one rank before they are compressed.

    Args:
        clip: the norm that the average of a parameter's gradients may have; None is any.
        world_size: ranks that average: each one's gradient may have this norm divided by their number's root.
    """

    def __init__(self, clip: float | None, world_size: int) -> None:
        self._norm = None if clip is None else clip / math.sqrt(world_size)
        self._bad: Tensor | int = 0

    def apply(self, lane: Lane) -> None:
        """Put zero where a gradient is not finite, and shorten what is too long, in place."""
        self._clean(lane.flat)
        for part in lane.parts if self._norm is not None else ():
            self._shorten(part.flat)

    def notes(self) -> Mapping[str, int]:
        """Return how many numbers were not finite so far, if any."""
        bad = int(self._bad)
        return {"non_finite_gradients": bad} if bad else {}

    def _clean(self, flat_N: Tensor) -> None:
        # A sum is far cheaper than a look at every number, and is finite only where they all are; on an accelerator to
        # ask for it would make the host wait.
        if flat_N.device.type == "cpu" and math.isfinite(float(flat_N.sum())):
            return
        bad_N = ~torch.isfinite(flat_N)
        self._bad = self._bad + bad_N.sum()
        flat_N.masked_fill_(bad_N, 0.0)

    def _shorten(self, flat_N: Tensor) -> None:
        norm = torch.linalg.vector_norm(flat_N, dtype=torch.float64)
        flat_N.mul_(((self._norm or 0.0) / norm.clamp(min=1e-300)).clamp(max=1.0).to(flat_N.dtype))
