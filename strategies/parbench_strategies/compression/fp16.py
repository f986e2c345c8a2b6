"""fp16 sends gradients in half precision: half the bytes, and 11 bits of each number instead of 24."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from parbench.api import Agrees, Claims, MeanCompressor, Paper, Rounded, Shape


@final
class Fp16(MeanCompressor):
    """Rounds gradients to half precision and averages them so; numbers beyond 65504 become infinite."""

    name = "fp16"
    paper = Paper(
        "Optimizing Network Performance for Distributed DNN Training on GPU Clusters: ImageNet/AlexNet Training in 1.5 "
        "Minutes (Sun et al., 2019)",
        "https://arxiv.org/abs/1902.06855",
    )
    agrees: Agrees = "on average"
    claims: Claims = "contraction"
    repeatable = True
    roundoff = 2.0**-10
    largest = 65504.0
    per = "group"

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        return grad_B.to(torch.float16)

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Rounded:
        return Rounded(values=message_M, shape=grad_B.shape, dtype=grad_B.dtype)

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """Two bytes an element."""
        return math.prod(shape), 2
