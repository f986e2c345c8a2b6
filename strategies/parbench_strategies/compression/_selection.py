"""Selection of the largest numbers: a sample says about where they begin, and only what is above that is sorted.

sample       the k-th largest of N is about the (k m / N)-th largest of m: one a little smaller is taken as the bound
candidates   all above the bound: at least k of them, or the sample was unlucky and everything is sorted
exact        the k largest candidates are the k largest of all
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

_SMALL: Final = 2**14  # below, sorting all is as fast
_SAMPLED: Final = 2**13
# Standard deviations of the sampled count that the bound leaves room for: fewer than k candidates once in 10^4.
_MARGIN: Final = 4.0


def largest(flat_N: Tensor, k: int) -> Tensor:
    """Return the places of the k numbers of largest magnitude, in no order; which of equal ones is left open."""
    sizes_N = flat_N.abs()
    if flat_N.device.type == "cpu" and flat_N.numel() >= _SMALL and 8 * k <= flat_N.numel():
        candidates = above(sizes_N, _bound(sizes_N, k))
        if candidates.numel() >= k:
            return candidates[sizes_N[candidates].topk(k, sorted=False).indices]
    return sizes_N.topk(k, sorted=False).indices


def about_largest(flat_N: Tensor, k: int) -> Tensor:
    """Return k places of nearly the largest magnitudes: the first k above a bound that a sample gives."""
    sizes_N = flat_N.abs()
    candidates = above(sizes_N, _bound(sizes_N, k)) if flat_N.numel() >= _SMALL else sizes_N.new_empty(0)
    return candidates[:k] if candidates.numel() >= k else largest(flat_N, k)


def above(sizes_N: Tensor, bound: float | Tensor) -> Tensor:
    """Return the places of all numbers that are not below a bound, in order."""
    if sizes_N.device.type == "cpu" and sizes_N.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.flatnonzero(sizes_N.numpy() >= float(bound)))
    return (sizes_N >= bound).nonzero().view(-1)


def _bound(sizes_N: Tensor, k: int) -> Tensor:
    """Return a number that at least k are not below, but for bad luck."""
    stride = max(1, sizes_N.numel() // _SAMPLED)
    # An odd stride goes through all columns of a matrix whose rows have an even length.
    sample_M = sizes_N[:: stride | 1]
    expected = k * sample_M.numel() / sizes_N.numel()
    rank = min(sample_M.numel(), math.ceil(expected + _MARGIN * math.sqrt(expected)) + 1)
    return sample_M.topk(rank).values[-1]
