"""Signs are one bit an element, a zero counted as positive; a scale beside them says how large it is."""

from __future__ import annotations

import torch
from torch import Tensor

from parbench_strategies.compression._bits import packed, unpacked


def signs(flat_N: Tensor) -> Tensor:
    """Return the packed signs of a gradient."""
    return packed(flat_N >= 0)


def signed(bytes_M: Tensor, positive: Tensor, negative: Tensor, like_B: Tensor) -> Tensor:
    """Return one number where a sign is positive and another where not, in the shape and type of `like_B`."""
    bits_N = unpacked(bytes_M, like_B.numel())
    return torch.where(bits_N, positive.to(like_B.dtype), negative.to(like_B.dtype)).view(like_B.shape)


def mean_size(flat_N: Tensor) -> Tensor:
    """Return the mean magnitude, one number of single precision."""
    return flat_N.abs().mean(dtype=torch.float64).to(torch.float32).view(1)
