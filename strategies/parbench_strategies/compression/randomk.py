"""randomk sends random elements of each gradient, which all ranks draw alike: no indices, and a plain average."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, MeanCompressor, Paper, Shape, Sparse
from parbench_strategies.compression._draws import shared
from parbench_strategies.compression._ratio import checked_ratio, kept
from parbench_strategies.compression._sparse import at


@final
class RandomK(MeanCompressor):
    """Averages k elements drawn with a shared seed: one of each of k stretches, which begin at a random place.

    Every element is sent as often as in a draw of k from all, and none twice, but a draw costs k numbers and not N.

    Args:
        ratio: share of the elements that is sent, rounded up.
        feedback: whether what is left out waits; else what is sent is scaled by N/k, so that its mean is the gradient.
        per: what a share is of: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "randomk"
    paper = Paper("Sparsified SGD with Memory (Stich et al., 2018)", "https://arxiv.org/abs/1809.07599")

    def __init__(self, ratio: float = 0.1, feedback: bool = True, per: Literal["tensor", "group"] = "tensor") -> None:
        self.ratio = checked_ratio(ratio)
        self.feedback = feedback
        self.claims: Claims = "contraction" if feedback else "unbiased"
        self.repeatable = feedback
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        flat_N = grad_B.reshape(-1)
        message = flat_N[self._places(grad_B, key)]
        return message if self.feedback else message * (flat_N.numel() / message.numel())

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Sparse:
        return at(message_M, self._places(grad_B, key), grad_B)

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """Values alone."""
        return kept(math.prod(shape), self.ratio), element_bytes

    def _places(self, grad_B: Tensor, key: str) -> Tensor:
        elements, k = grad_B.numel(), kept(grad_B.numel(), self.ratio)
        draws = shared(self, key, grad_B.device)
        # The first N mod k stretches are one element longer; that all begin at a random place makes chances equal.
        first, longer = divmod(elements, k)
        numbers = torch.arange(k, device=grad_B.device)
        begins = numbers * first + numbers.clamp(max=longer)
        lengths = first + (numbers < longer).to(torch.float64)
        within = torch.rand(k, dtype=torch.float64, generator=draws, device=grad_B.device)
        turned = torch.randint(elements, (1,), generator=draws, device=grad_B.device)
        return (begins + (within * lengths).long() + turned) % elements
