"""natural rounds each number at random to one of the two powers of two around it: a sign and an exponent, 9 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper, Shape
from parbench_strategies.compression._bits import bytes_of_bits, packed, unpacked
from parbench_strategies.compression._draws import own

_FRACTION_BITS = 23  # of single precision, below 8 bits of exponent
_BIAS = 127


@final
class Natural(GatherCompressor):
    """Sends the sign and the exponent of each number; its fraction is the probability of the next higher exponent."""

    name = "natural"
    paper = Paper(
        "Natural Compression for Distributed Deep Learning (Horvath et al., 2019)", "https://arxiv.org/abs/1905.10988"
    )
    claims: Claims = "unbiased"
    repeatable = True
    per = "group"

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        bits_N = grad_B.reshape(-1).float().view(torch.int32)
        draws = own(self, key, grad_B.device)
        drawn_N = torch.randint(
            1 << _FRACTION_BITS, bits_N.shape, dtype=torch.int32, generator=draws, device=grad_B.device
        )
        # A draw added to the fraction carries into the exponent with the fraction's probability.
        exponents_N = ((bits_N & 0x7FFFFFFF) + drawn_N) >> _FRACTION_BITS
        highest = math.floor(math.log2(torch.finfo(grad_B.dtype).max)) + _BIAS
        return [exponents_N.clamp_(max=highest).to(torch.uint8), packed(bits_N < 0)]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        exponents, negative = message
        bits_N = exponents.to(torch.int32) << _FRACTION_BITS
        bits_N |= unpacked(negative, grad_B.numel()).to(torch.int32) << 31
        return bits_N.view(torch.float32).to(grad_B.dtype).view(grad_B.shape)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """A byte of exponent and a bit of sign for every element."""
        elements = math.prod(shape)
        return elements + bytes_of_bits(elements)
