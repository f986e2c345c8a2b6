"""quantize8 rounds each number to one of 255 steps between minus and plus the largest magnitude: a byte an element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Agrees, Claims, GatherCompressor, Paper, Shape

_SCALE_BYTES = 4
_STEPS = 127


@final
class Quantize8(GatherCompressor):
    """Sends whole numbers from -127 to 127 and the largest magnitude of each gradient.

    The paper decodes, adds and codes again at every hop of its ring; here every rank decodes all messages once.

    Args:
        per: what has one magnitude: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "quantize8"
    paper = Paper(
        "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training (Li et al., 2018)",
        "https://arxiv.org/abs/1811.03619",
    )
    agrees: Agrees = "on average"
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, per: Literal["tensor", "group"] = "tensor") -> None:
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1).float()
        largest = flat_N.abs().max().view(1)
        steps_N = (flat_N / largest.clamp(min=torch.finfo(torch.float32).tiny)).mul_(_STEPS).round_()
        return [steps_N.to(torch.int8), largest]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        steps, largest = message
        return (steps.float() * (largest / _STEPS)).to(grad_B.dtype).view(grad_B.shape)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """A byte an element, and the largest magnitude."""
        return math.prod(shape) + _SCALE_BYTES
