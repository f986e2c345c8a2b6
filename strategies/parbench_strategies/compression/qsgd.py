"""qsgd rounds each number at random to one of the levels between zero and the norm of its bucket."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits, packed_codes, unpacked_codes
from parbench_strategies.compression._draws import own

_NORM_BYTES = 4


@final
class Qsgd(GatherCompressor):
    """Sends |g|_2 sign(g) l / s of every bucket, where l is |g| s / |g|_2 rounded up or down, right on average.

    The paper codes levels by how often they come; here each takes as many bits as the largest.

    Args:
        levels: s, from 1 to 127: above zero, of either sign.
        bucket: elements that share a norm.
        per: what buckets are cut from: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "qsgd"
    paper = Paper(
        "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding (Alistarh et al., 2017)",
        "https://arxiv.org/abs/1610.02132",
    )
    claims: Claims = "unbiased"

    def __init__(self, levels: int = 127, bucket: int = 512, per: Literal["tensor", "group"] = "tensor") -> None:
        if not 1 <= levels <= 127:
            raise ValueError(f"levels are those above zero of either sign, from 1 to 127, got {levels}")
        if not 1 <= bucket < 2**31:
            raise ValueError(f"bucket is the number of elements that share a norm, from 1 to 2^31, got {bucket}")
        self.levels = levels
        self.bucket = bucket
        self.bits = (2 * levels).bit_length()
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1).float()
        drawn_N = torch.rand(flat_N.shape, generator=own(self, key, grad_B.device), device=grad_B.device)
        rows = F.pad(flat_N, (0, -flat_N.numel() % self.bucket)).view(-1, self.bucket)
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).to(torch.float32)
        level_N = (rows * (self.levels / norms.clamp(min=1e-38)).unsqueeze(1)).view(-1)[: flat_N.numel()]
        # Down after a draw is added: up with the probability of the fraction, for either sign.
        codes_N = level_N.add_(drawn_N).floor_().clamp_(-self.levels, self.levels).add_(self.levels)
        return [packed_codes(codes_N.to(torch.uint8), self.bits), norms]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        codes, norms = message
        level_N = unpacked_codes(codes, grad_B.numel(), self.bits).float() - self.levels
        rows = F.pad(level_N, (0, -level_N.numel() % self.bucket)).view(-1, self.bucket)
        values_N = rows.mul_((norms / self.levels).unsqueeze(1)).view(-1)[: grad_B.numel()]
        return values_N.to(grad_B.dtype).view(grad_B.shape)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """The bits of a level and its sign for every element, and a norm for every bucket."""
        elements = math.prod(shape)
        return bytes_of_bits(elements, self.bits) + _NORM_BYTES * -(-elements // self.bucket)
