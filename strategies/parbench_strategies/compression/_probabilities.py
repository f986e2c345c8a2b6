"""Probabilities with which numbers are sent, so that few are and the error is least (Wangni et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor


def closed_form(sizes_N: Tensor, epsilon: float) -> Tensor:
    """Return p_i = min(lambda |g_i|, 1) with the least sum for which the variance stays within 1 + epsilon of |g|^2.

    Args:
        sizes_N: magnitudes, in double precision, the largest about 1.
        epsilon: how much larger the second moment may be than that of the gradient.
    """
    ordered_N = sizes_N.sort(descending=True).values
    squares_N = ordered_N.square()
    # Of what follows the first k: sums from k on.
    rest_N = ordered_N.flip(0).cumsum(0).flip(0)
    rest_squares_N = squares_N.flip(0).cumsum(0).flip(0)
    allowed_N = epsilon * squares_N.sum() + rest_squares_N
    # The last place always holds: a number times itself is at most its square and something.
    k = int((ordered_N * rest_N <= allowed_N).to(torch.uint8).argmax())
    scale = rest_N[k] / allowed_N[k].clamp(min=torch.finfo(torch.float64).tiny)
    return (scale * sizes_N).clamp(max=1.0)


def greedy(sizes_N: Tensor, density: float) -> Tensor:
    """Return probabilities that sum to about a share of the elements, found without sorting.

    Args:
        sizes_N: magnitudes, in double precision, the largest about 1.
        density: share of the elements that is sent on average.
    """
    count, tiny = sizes_N.numel(), torch.finfo(torch.float64).tiny
    p_N = (density * count * sizes_N / sizes_N.sum().clamp(min=tiny)).clamp(max=1.0)
    for _ in range(2):
        below_N = p_N < 1
        missing = density * count - count + below_N.sum()
        factor = missing / (p_N * below_N).sum().clamp(min=tiny)
        # Where nothing is missing p stays as it is.
        p_N = torch.where(below_N, p_N * factor.clamp(min=1.0), p_N).clamp(max=1.0)
    return p_N
