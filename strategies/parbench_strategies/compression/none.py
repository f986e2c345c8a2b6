"""none sends gradients as they are; the engine then exchanges their own memory, and nothing is copied for it."""

from __future__ import annotations

from typing import final

from torch import Tensor

from parbench.api import Agrees, Claims, MeanCompressor, Paper


@final
class Nothing(MeanCompressor):
    """Leaves gradients alone: the message of one is itself."""

    name = "none"
    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    agrees: Agrees = "closely"
    per = "group"
    claims: Claims = "contraction"
    repeatable = True
    passes_through = True

    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        return grad_B

    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Tensor:
        return message_M
