"""random_block sends a stretch of each gradient, in every step another, which all ranks draw alike: no indices."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, MeanCompressor, Paper, Shape
from parbench_strategies.compression._draws import shared
from parbench_strategies.compression._ratio import checked_ratio, kept


@final
class RandomBlock(MeanCompressor):
    """Averages k consecutive elements from a place drawn with a shared seed; the end goes on at the beginning.

    Args:
        ratio: share of the elements that is sent, rounded up.
        feedback: whether what is left out waits; else what is sent is scaled by N/k, so that its mean is the gradient.
        per: what a share is of: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "random_block"
    paper = Paper(
        "Sparse Communication for Training Deep Networks (Foroutan Eghlidi and Jaggi, 2020)",
        "https://arxiv.org/abs/2009.09271",
    )

    def __init__(self, ratio: float = 0.1, feedback: bool = True, per: Literal["tensor", "group"] = "tensor") -> None:
        self.ratio = checked_ratio(ratio)
        self.feedback = feedback
        self.claims: Claims = "contraction" if feedback else "unbiased"
        self.repeatable = feedback
        self.per = per

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        flat_N = grad_B.reshape(-1)
        k, start = kept(flat_N.numel(), self.ratio), self._start(grad_B, key)
        tail = flat_N[start : start + k]
        message = torch.cat([tail, flat_N[: k - tail.numel()]])
        return message if self.feedback else message * (flat_N.numel() / k)

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Tensor:
        flat_N = torch.zeros(grad_B.numel(), dtype=grad_B.dtype, device=grad_B.device)
        start = self._start(grad_B, key)
        tail = flat_N[start : start + message_M.numel()]
        tail.copy_(message_M[: tail.numel()])
        flat_N[: message_M.numel() - tail.numel()] = message_M[tail.numel() :]
        return flat_N.view(grad_B.shape)

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """The stretch."""
        return kept(math.prod(shape), self.ratio), element_bytes

    def _start(self, grad_B: Tensor, key: str) -> int:
        # Drawn on the host: the place is needed there, and a generator of the device would make it wait.
        draws = shared(self, key, torch.device("cpu"))
        return int(torch.randint(grad_B.numel(), (), generator=draws))
