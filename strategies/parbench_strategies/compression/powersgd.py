"""powersgd sends two thin matrices whose product is near the gradient's: one step of power iteration over all ranks.

M = gradient as a matrix     P = mean of M Q, made orthonormal     Q = mean of M^T P     average = P Q^T
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import final

import torch
from torch import Tensor

from parbench.api import Carriage, Channel, Claims, Finish, Paper, Reduced, RoundsCompressor, Shape, decoded
from parbench_strategies.compression._bases import Bases, orthonormal, product
from parbench_strategies.compression._draws import shared


@final
class PowerSgd(RoundsCompressor):
    """Averages low-rank factors of each gradient of two or more dimensions, in two rounds, with error feedback.

    Args:
        rank: columns of the factors.
        warm_start: whether each step begins from the last one's Q; else from a new draw.
    """

    name = "powersgd"
    paper = Paper(
        "PowerSGD: Practical Low-Rank Gradient Compression (Vogels et al., 2019)", "https://arxiv.org/abs/1905.13727"
    )
    linear = True
    feedback = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, rank: int = 1, warm_start: bool = True) -> None:
        if rank < 1:
            raise ValueError(f"rank is the number of columns of the factors, at least 1, got {rank}")
        self.columns = rank  # `rank` itself is who this process is
        self._bases = Bases(keep=warm_start)

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        if len(shape) < 2 or self.columns > min(shape[0], math.prod(shape[1:])):
            return False
        return 4 * self.columns * (shape[0] + math.prod(shape[1:])) < math.prod(shape) * element_bytes

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        matrices = [grad.reshape(grad.shape[0], -1).float() for grad in grads]
        bases = [self._bases.of(key, partial(self._drawn, key, m)) for key, m in zip(keys, matrices, strict=True)]
        thin = channel.mean([m @ basis for m, basis in zip(matrices, bases, strict=True)])
        spans = [orthonormal(p) for p in thin]
        owns = [m.T @ p for m, p in zip(matrices, spans, strict=True)]
        averaging = channel.start_mean(owns)

        def finish() -> list[Reduced]:
            means = averaging()
            self._bases.remember(keys, means)
            products = [partial(product, p, grad) for p, grad in zip(spans, grads, strict=True)]
            return decoded(products, means, owns)

        return finish

    def cost(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction]:
        rows = sum(self.columns * shape[0] for shape in shapes)
        columns = sum(self.columns * math.prod(shape[1:]) for shape in shapes)
        return channel.together(channel.averaged(rows, 4), channel.averaged(columns, 4))

    def message_bytes(self, elements: int, element_bytes: int) -> int:
        """Return about the bytes of both factors, as if it were a square matrix."""
        return min(elements * element_bytes, 2 * 4 * self.columns * math.isqrt(elements))

    def _drawn(self, key: str, matrix: Tensor) -> Tensor:
        draws = shared(self, key, matrix.device)
        return torch.randn(matrix.shape[1], self.columns, generator=draws, device=matrix.device)
