"""Indices travel in the smallest type that holds all of a tensor's places: one, two, four or eight bytes."""

from __future__ import annotations

import torch
from torch import Tensor


def index_bytes(elements: int) -> int:
    """Return the bytes of one index into so many elements."""
    return next(size for size in (1, 2, 4, 8) if elements <= 256**size or size == 8)


def narrowed(indices_K: Tensor, elements: int) -> Tensor:
    """Return indices below `elements` in few bytes; two of them are the bits of an int16, which may look negative."""
    types = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    size = index_bytes(elements)
    # Numbers above 2^31 in four bytes wrap in the same way.
    return indices_K.to(types[size])


def widened(indices_K: Tensor) -> Tensor:
    """Return what `narrowed` was given, as int64."""
    wide = indices_K.to(torch.int64)
    masks = {torch.int16: 0xFFFF, torch.int32: 0xFFFFFFFF}
    return wide & masks[indices_K.dtype] if indices_K.dtype in masks else wide
