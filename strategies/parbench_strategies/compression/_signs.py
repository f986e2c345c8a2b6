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
    # The eight numbers that each byte stands for, looked up byte by byte: a fifth of the time of asking bit by bit.
    every = torch.arange(256, dtype=torch.uint8, device=bytes_M.device)
    bits = unpacked(every, 8 * 256).view(256, 8)
    table = torch.where(bits, positive.to(like_B.dtype), negative.to(like_B.dtype))
    return table.index_select(0, bytes_M.to(torch.int32)).view(-1)[: like_B.numel()].view(like_B.shape)


def mean_size(flat_N: Tensor) -> Tensor:
    """Return the mean magnitude, one number of single precision."""
    return flat_N.abs().mean(dtype=torch.float64).to(torch.float32).view(1)
