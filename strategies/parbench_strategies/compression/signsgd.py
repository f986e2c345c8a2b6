"""signsgd: ranks vote with the signs of their gradients, one bit an element, and all follow the majority."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits
from parbench_strategies.compression._signs import mean_size, signed, signs

_SCALE_BYTES = 4


@final
class SignSgd(GatherCompressor):
    """Steps by the sign that most ranks' gradients have, where they are even by nothing.

    Args:
        scaled: whether the votes are multiplied by the mean magnitude of the ranks' gradients, so that the optimizer's
            learning rate keeps its meaning; else each is 1, as in the paper, and the learning rate is the step.
        per: what has one magnitude: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "signsgd"
    paper = Paper(
        "signSGD with Majority Vote is Communication Efficient and Fault Tolerant (Bernstein et al., 2019)",
        "https://arxiv.org/abs/1810.05291",
    )
    linear = False
    repeatable = True

    def __init__(self, scaled: bool = True, per: Literal["tensor", "group"] = "tensor") -> None:
        self.scaled = scaled
        self.claims: Claims = "contraction" if scaled else "nothing"
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1)
        scale = mean_size(flat_N)
        return [signs(flat_N), scale if self.scaled else (scale > 0).to(scale.dtype)]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        bits, scale = message
        return signed(bits, scale, -scale, grad_B)

    def average(self, messages: Sequence[Sequence[Tensor]], grad_B: Tensor, key: str) -> Tensor:
        # A gradient of zeros has no sign: its rank does not vote.
        one = torch.ones(1, device=grad_B.device)
        like_B = torch.empty(grad_B.shape, dtype=torch.float32, device=grad_B.device)
        votes_B = torch.zeros_like(like_B)
        for bits, scale in messages:
            votes = one * (scale > 0)
            votes_B += signed(bits, votes, -votes, like_B)
        scales = torch.cat([scale for _, scale in messages])
        size = scales.mean() if self.scaled else scales.max()
        return (votes_B.sign_() * size).to(grad_B.dtype)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """One bit an element, and the scale."""
        return bytes_of_bits(math.prod(shape)) + _SCALE_BYTES
