"""Masks are the places of a gradient whose average was zero in every step so far, known to be stable after some."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor


@final
class Masks:
    """A mask per key; all ranks see the same averages, so all have the same masks.

    Args:
        patience: steps for which a mask must stay the same before it counts.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._kept: dict[str, tuple[Tensor, int]] = {}  # key -> where it was zero, for how many steps unchanged

    def stable(self, key: str, least: int) -> Tensor | None:
        """Return the mask, if it is stable and hides more than so many places."""
        mask, steps = self._kept.get(key, (None, 0))
        return mask if mask is not None and steps >= self._patience and int(mask.sum()) > least else None

    def forget(self, key: str) -> None:
        """Begin anew: a rank has a number where the mask says zero."""
        self._kept.pop(key, None)

    def see(self, key: str, average_N: Tensor) -> None:
        """Take note of an average."""
        mask, steps = self._kept.get(key, (torch.ones_like(average_N, dtype=torch.bool), 0))
        now = mask & (average_N == 0)
        self._kept[key] = now, steps + 1 if torch.equal(now, mask) else 0
