"""terngrad rounds each number at random to minus, nothing or plus the largest magnitude: two bits an element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits, packed, unpacked
from parbench_strategies.compression._draws import own
from parbench_strategies.compression._signs import signed

_SCALE_BYTES = 4


@final
class TernGrad(GatherCompressor):
    """Sends s sign(g) b, where s is the largest magnitude and b is 1 with probability |g| / s, else 0.

    Args:
        clip_deviations: standard deviations that gradients are cut to first, which makes s smaller and the mean no
            longer the gradient; `inf` cuts nothing.
        per: what has one magnitude: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "terngrad"
    paper = Paper(
        "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning (Wen et al., 2017)",
        "https://arxiv.org/abs/1705.07878",
    )

    def __init__(self, clip_deviations: float = 2.5, per: Literal["tensor", "group"] = "tensor") -> None:
        if not clip_deviations > 0:
            raise ValueError(f"clip_deviations must be above 0 (inf cuts nothing), got {clip_deviations}")
        self.clip_deviations = clip_deviations
        self.claims: Claims = "unbiased" if clip_deviations == math.inf else "nothing"
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1).float()
        sizes_N = flat_N.abs()
        if self.clip_deviations < math.inf and sizes_N.numel() > 1:
            # The deviation from zero, about which gradients lie; one of the mean would clip constants to nothing.
            deviation = torch.linalg.vector_norm(flat_N, dtype=torch.float64) / math.sqrt(flat_N.numel())
            sizes_N = sizes_N.clamp(max=(self.clip_deviations * deviation).to(torch.float32))
        scale = sizes_N.max().view(1)
        drawn_N = torch.rand(sizes_N.shape, generator=own(self, key, grad_B.device), device=grad_B.device)
        return [packed(drawn_N * scale < sizes_N), packed(flat_N < 0), scale]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        some, negative, scale = message
        values_B = signed(negative, -scale, scale, grad_B)
        return values_B.mul_(unpacked(some, grad_B.numel()).view(grad_B.shape))

    def length(self, shape: Shape, element_bytes: int) -> int:
        """Whether it is nothing and its sign, a bit each, and the scale."""
        return 2 * bytes_of_bits(math.prod(shape)) + _SCALE_BYTES
