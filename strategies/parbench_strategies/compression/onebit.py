"""onebit sends signs and two numbers of each gradient, the means of what is positive and of what is negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits
from parbench_strategies.compression._signs import signed, signs

_SCALES_BYTES = 8


@final
class OneBit(GatherCompressor):
    """Replaces each number by the mean of those of its sign, with error feedback.

    The paper has two means for each column of a weight matrix; here a tensor has two.

    Args:
        per: what has two means: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "onebit"
    paper = Paper(
        "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs "
        "(Seide et al., 2014)",
        "https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html",
    )
    feedback = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, per: Literal["tensor", "group"] = "tensor") -> None:
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1)
        positive_N = flat_N.clamp(min=0)
        above = positive_N.sum(dtype=torch.float64)
        below = (flat_N - positive_N).sum(dtype=torch.float64)
        count = (flat_N >= 0).sum()
        means = torch.stack([above / count.clamp(min=1), below / (flat_N.numel() - count).clamp(min=1)])
        return [signs(flat_N), means.to(torch.float32)]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        bits, means = message
        return signed(bits, means[0], means[1], grad_B)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """One bit an element, and the two means."""
        return bytes_of_bits(math.prod(shape)) + _SCALES_BYTES
