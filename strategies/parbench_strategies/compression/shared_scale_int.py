"""shared_scale_int sends small whole numbers that add up as they are: ranks first agree on one scale for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import final

import torch
from torch import Tensor

from parbench.api import Agrees, Carriage, Channel, Claims, Finish, Paper, RoundsCompressor, Shape, decoded
from parbench_strategies.compression._draws import own

_LARGEST = 127  # of a sum of all ranks in one byte


@final
class SharedScaleInt(RoundsCompressor):
    """Adds up whole numbers of one byte: each rank has 127 / n steps up to the largest magnitude of any.

    The idea is the paper's: what is added up is never decoded in between. It states no method; this is the simplest.

    Args:
        stochastic: whether numbers are rounded at random, so that the mean is the gradient; else to the nearest.
    """

    name = "shared_scale_int"
    paper = Paper(
        "Homomorphic Parameter Compression for Distributed Deep Learning Training (Jang et al., 2017)",
        "https://arxiv.org/abs/1711.10123",
    )
    agrees: Agrees = "on average"
    linear = True

    def __init__(self, stochastic: bool = True) -> None:
        self.stochastic = stochastic
        self.claims: Claims = "unbiased" if stochastic else "contraction"
        self.repeatable = not stochastic

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        # The scale is gathered, n-1 times; a byte of an element goes 2(n-1)/n times, as the gradient does.
        elements = math.prod(shape)
        return world_size <= _LARGEST and 4 * world_size + 2 * elements < 2 * elements * element_bytes

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        most = _LARGEST // channel.world_size
        largest = torch.stack([grad.abs().max().float() for grad in grads])
        ((*by_rank,),) = channel.gather([[largest]])
        scales = torch.stack([one for (one,) in by_rank]).amax(0) / most
        owns = [self._steps(*one, most) for one in zip(grads, keys, scales, strict=True)]
        adding = channel.start_sum(owns)

        values = [partial(_value, scale, grad) for scale, grad in zip(scales, grads, strict=True)]
        return lambda: decoded(values, [total / channel.world_size for total in adding()], owns)

    def cost(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction]:
        elements = sum(map(math.prod, shapes))
        return channel.together(channel.gathered(4 * len(shapes)), channel.averaged(elements, 1))

    def message_bytes(self, elements: int, element_bytes: int) -> int:
        """A byte an element."""
        return elements

    def _steps(self, grad_B: Tensor, key: str, scale: Tensor, most: int) -> Tensor:
        steps_B = grad_B.float() / scale.clamp(min=torch.finfo(torch.float32).tiny)
        if self.stochastic:
            draws = own(self, key, grad_B.device)
            steps_B = (steps_B + torch.rand(steps_B.shape, generator=draws, device=grad_B.device)).floor_()
        return steps_B.round_().clamp_(-most, most).to(torch.int8)


def _value(scale: Tensor, like_B: Tensor, steps_B: Tensor) -> Tensor:
    return (steps_B.float() * scale).to(like_B.dtype)
