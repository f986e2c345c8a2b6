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
_STRETCH: Final = 2**15  # of fp32 128 KiB: less than a core's own cache
# Standard deviations of the sampled count that the bound leaves room for: fewer than k candidates once in 10^4.
_MARGIN: Final = 4.0


def largest(flat_N: Tensor, k: int) -> Tensor:
    """Return the places of the k numbers of largest magnitude, in no order; which of equal ones is left open."""
    if flat_N.device.type == "cpu" and flat_N.numel() >= _SMALL and 8 * k <= flat_N.numel():
        candidates = above(flat_N, _bound(flat_N, k))
        if candidates.numel() >= k:
            return candidates[flat_N[candidates].abs().topk(k, sorted=False).indices]
    return flat_N.abs().topk(k, sorted=False).indices


def about_largest(flat_N: Tensor, k: int) -> Tensor:
    """Return k places of nearly the largest magnitudes: the first k above a bound that a sample gives."""
    candidates = above(flat_N, _bound(flat_N, k)) if flat_N.numel() >= _SMALL else flat_N.new_empty(0)
    return candidates[:k] if candidates.numel() >= k else largest(flat_N, k)


def above(flat_N: Tensor, bound: float | Tensor) -> Tensor:
    """Return the places of all numbers whose magnitude is not below a bound, in order."""
    if flat_N.device.type != "cpu" or flat_N.dtype not in (torch.float32, torch.float64):
        return (flat_N.abs() >= bound).nonzero().view(-1)
    # A stretch at a time, whose magnitudes and truth values stay in the cache: memory is read once and not written.
    numbers, least = flat_N.numpy(), float(bound)
    sizes = np.empty(min(_STRETCH, len(numbers)), numbers.dtype)
    found = []
    for first in range(0, len(numbers), _STRETCH):
        stretch = numbers[first : first + _STRETCH]
        found.append(torch.from_numpy(np.flatnonzero(np.abs(stretch, out=sizes[: len(stretch)]) >= least)).add_(first))
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _bound(flat_N: Tensor, k: int) -> Tensor:
    """Return a magnitude that at least k are not below, but for bad luck."""
    stride = max(1, flat_N.numel() // _SAMPLED)
    # An odd stride goes through all columns of a matrix whose rows have an even length.
    sample_M = flat_N[:: stride | 1].abs()
    expected = k * sample_M.numel() / flat_N.numel()
    rank = min(sample_M.numel(), math.ceil(expected + _MARGIN * math.sqrt(expected)) + 1)
    return sample_M.topk(rank).values[-1]
