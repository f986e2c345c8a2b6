"""Bases are the factors from which a power iteration goes on, one per key, kept from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor


def product(left: Tensor, like_B: Tensor, right: Tensor) -> Tensor:
    """Return the matrix of which these are the factors, in the shape and type of `like_B`."""
    return (left @ right.T).to(like_B.dtype).view(like_B.shape)


@final
class Bases:
    """Remembers the last factor of every gradient.

    Args:
        keep: whether to remember at all.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._kept: dict[str, Tensor] = {}

    def of(self, key: str, drawn: Tensor) -> Tensor:
        """Return the factor to begin with; `drawn` where there is none."""
        if key not in self._kept:
            return drawn
        kept = self._kept[key]
        # A column of zeros, which a gradient of zeros leaves, would stay one for ever.
        return torch.where(kept.abs().amax(0) > 0, kept, drawn)

    def remember(self, keys: Sequence[str], factors: Sequence[Tensor]) -> None:
        """Keep the factors of this step."""
        if self._keep:
            self._kept |= zip(keys, factors, strict=True)
