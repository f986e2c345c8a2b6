"""native is the backend's own all-reduce: a ring in gloo; NCCL chooses among rings, trees and switches."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import Collective, Comm, InFlight, Paper, all_reduced


@final
class Native(Collective):
    """Adds a tensor with torch.distributed's all_reduce, several at a time; the backend orders the additions.

    A rank sends 2(n-1)/n of the tensor.
    """

    name = "native"
    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    immediate = True
    proportional = True

    def start(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Hand the tensor to the backend and return at once."""
        return comm.sum_async(flat_N)

    def sent(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """What a ring sends."""
        size = all_reduced(elements * element_bytes, world_size)
        return {"all_reduce": size} if size else {}
