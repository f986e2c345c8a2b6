"""Sparse messages are values and their places; added up they touch nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parbench_strategies.compression._indices import narrowed, widened


def taken(flat_N: Tensor, places_K: Tensor) -> list[Tensor]:
    """Return the message of some places: values, indices."""
    return [flat_N[places_K], narrowed(places_K, flat_N.numel())]


def placed(values_K: Tensor, places_K: Tensor, like_B: Tensor) -> Tensor:
    """Return values at their places and zero elsewhere."""
    flat_N = torch.zeros(like_B.numel(), dtype=like_B.dtype, device=like_B.device)
    return flat_N.index_copy_(0, places_K, values_K).view(like_B.shape)


def dense(message: Sequence[Tensor], like_B: Tensor) -> Tensor:
    """Return what the message of some places stands for."""
    values_K, places_K = message
    return placed(values_K, widened(places_K), like_B)


def mean_of_sparse(messages: Sequence[Sequence[Tensor]], like_B: Tensor) -> Tensor:
    """Return the mean of what messages stand for, added in their order."""
    flat_N = torch.zeros(like_B.numel(), dtype=like_B.dtype, device=like_B.device)
    for values_K, places_K in messages:
        flat_N.index_add_(0, widened(places_K), values_K)
    return flat_N.div_(len(messages)).view(like_B.shape)
