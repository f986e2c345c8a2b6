"""bf16 sends gradients as bfloat16: half the bytes, all of single precision's range, and 8 bits of each number."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from parbench.api import Agrees, Claims, MeanCompressor, Paper, Rounded, Shape


@final
class Bf16(MeanCompressor):
    """Rounds gradients to bfloat16 and averages them so."""

    name = "bf16"
    paper = Paper(
        "A Study of BFLOAT16 for Deep Learning Training (Kalamkar et al., 2019)", "https://arxiv.org/abs/1905.12322"
    )
    agrees: Agrees = "on average"
    claims: Claims = "contraction"
    repeatable = True
    roundoff = 2.0**-7
    per = "group"

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        return grad_B.to(torch.bfloat16)

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Rounded:
        return Rounded(values=message_M, shape=grad_B.shape, dtype=grad_B.dtype)

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """Two bytes an element."""
        return math.prod(shape), 2
