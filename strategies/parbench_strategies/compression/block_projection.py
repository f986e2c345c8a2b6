"""block_projection sends random projections of sparse blocks, from which the blocks are recovered.

block of B numbers ──largest S──> sparse x ──A (M x B)──> M numbers y = A x ──iterative hard thresholding──> about x
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from parbench.api import GatherCompressor, Paper, Shape
from parbench_strategies.compression._draws import lasting
from parbench_strategies.compression._recovery import recovered, sparsest


@final
class BlockProjection(GatherCompressor):
    """Sends M numbers for each block of B, of which the S largest are meant; what is not recovered is fed back.

    The paper projects for a wireless channel that adds up; here every rank recovers the blocks of all.

    Args:
        block: B, elements of a block.
        sparsity: S, numbers of each block that are kept.
        measurements: M, numbers that are sent of each.
        iterations: of the recovery.
    """

    name = "block_projection"
    paper = Paper(
        "Communication-Efficient Federated Learning over MIMO Multiple Access Channels (Jeon et al., 2022)",
        "https://arxiv.org/abs/2206.05723",
    )
    feedback = True
    per = "group"

    def __init__(self, block: int = 256, sparsity: int = 8, measurements: int = 64, iterations: int = 10) -> None:
        if not 1 <= sparsity <= measurements <= block <= 4096:
            raise ValueError(
                f"1 <= sparsity <= measurements <= block <= 4096 must hold, got {sparsity}, {measurements}, {block}"
            )
        if iterations < 1:
            raise ValueError(f"iterations of the recovery are at least 1, got {iterations}")
        self.block, self.sparsity, self.measurements, self.iterations = block, sparsity, measurements, iterations

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1).float()
        blocks = F.pad(flat_N, (0, -flat_N.numel() % self.block)).view(-1, self.block)
        return [sparsest(blocks, self.sparsity) @ self._projection(grad_B.device).T]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        blocks = recovered(message[0], self._projection(grad_B.device), self.sparsity, self.iterations)
        return blocks.view(-1)[: grad_B.numel()].to(grad_B.dtype).view(grad_B.shape)

    def length(self, shape: Shape, element_bytes: int) -> int:
        """Numbers of single precision, as many for the last block."""
        return 4 * self.measurements * -(-math.prod(shape) // self.block)

    def _projection(self, device: torch.device) -> Tensor:
        """Return A: Gaussian, with columns of about norm one, the same on every rank and in every step."""
        drawn = torch.randn(self.measurements, self.block, generator=lasting(self, "projection", torch.device("cpu")))
        return (drawn / math.sqrt(self.measurements)).to(device)
