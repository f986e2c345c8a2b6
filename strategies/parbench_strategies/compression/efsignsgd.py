"""efsignsgd sends signs and the mean magnitude of each gradient, and keeps the error for the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits
from parbench_strategies.compression._signs import mean_size, signed, signs

_SCALE_BYTES = 4


@final
class EfSignSgd(GatherCompressor):
    """Sends sign(g) |g|_1 / N, with error feedback.

    Args:
        per: what has one magnitude: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "efsignsgd"
    paper = Paper(
        "Error Feedback Fixes SignSGD and other Gradient Compression Schemes (Karimireddy et al., 2019)",
        "https://arxiv.org/abs/1901.09847",
    )
    feedback = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, per: Literal["tensor", "group"] = "tensor") -> None:
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1)
        return [signs(flat_N), mean_size(flat_N)]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        bits, scale = message
        return signed(bits, scale, -scale, grad_B)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """One bit an element, and the scale."""
        return bytes_of_bits(math.prod(shape)) + _SCALE_BYTES
