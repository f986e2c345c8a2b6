"""truncate drops the lower 16 bits of each number: half the bytes, and no arithmetic at all."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from parbench.api import Agrees, Claims, MeanCompressor, Paper, Shape

_UPPER = -0x10000  # 0xFFFF0000 as a signed number


@final
class Truncate(MeanCompressor):
    """Keeps the upper half of single-precision numbers, which rounds them towards zero, and averages that."""

    name = "truncate"
    paper = Paper(
        "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training (Li et al., 2018)",
        "https://arxiv.org/abs/1811.03619",
    )
    agrees: Agrees = "on average"
    claims: Claims = "contraction"
    repeatable = True
    roundoff = 2.0**-7
    per = "group"

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        upper = grad_B.float().contiguous().view(torch.int32) & _UPPER
        # What is left is a bfloat16 number exactly.
        return upper.view(torch.float32).to(torch.bfloat16)

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Tensor:
        return message_M.to(grad_B.dtype)

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """Two bytes an element."""
        return math.prod(shape), 2
