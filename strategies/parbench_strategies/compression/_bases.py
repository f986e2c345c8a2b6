"""Bases are the factors from which a power iteration goes on, one per key, kept from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

from parbench.api import LowRank


def orthonormal(columns: Tensor) -> Tensor:
    """Return a basis of what columns span; of one column of zeros, zeros."""
    if columns.shape[1] > 1:
        basis: Tensor = torch.linalg.qr(columns).Q
        return basis
    norm = torch.linalg.vector_norm(columns, dtype=torch.float64)
    only: Tensor = columns / norm.clamp(min=torch.finfo(torch.float32).tiny).to(columns.dtype)
    return only


def product(left: Tensor, like_B: Tensor, right: Tensor) -> LowRank:
    """Return the matrix of which these are the factors, in the shape and type of `like_B`."""
    return LowRank(left=left, right=right, shape=like_B.shape, dtype=like_B.dtype)


@final
class Bases:
    """Remembers the first and the last factor of every gradient.

    Args:
        keep: whether to remember at all.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def of(self, key: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return the factor to begin with: a drawn one in the first step."""
        if key not in self._last:
            self._first[key] = draw()
            return self._first[key]
        last = self._last[key]
        # A column of zeros, which a gradient of zeros leaves, would stay one for ever.
        return torch.where(last.abs().amax(0) > 0, last, self._first[key])

    def remember(self, keys: Sequence[str], factors: Sequence[Tensor]) -> None:
        """Keep the factors of this step."""
        if self._keep:
            self._last |= zip(keys, factors, strict=True)
