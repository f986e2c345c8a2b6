"""Optional parameters are those that a step may leave without a gradient: ranks first tell each other which they used.

Which of them have a gradient is known only after backward. What no rank used has none, so that no optimizer moves it;
what some used is averaged, uncompressed, with zero for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import torch
from torch import nn

from parbench.api import Collective, RankContext

BYTES_OF_A_MARK: Final = 4


@final
class Optional:
    """The optional parameters of one rank.

    Args:
        parameters: by name, in the same order on every rank.
        collective: what adds their gradients up.
        ctx: this rank.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], collective: Collective, ctx: RankContext) -> None:
        self._parameters = list(parameters.values())
        self._collective = collective
        self._ctx = ctx

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._parameters)

    def average(self) -> None:
        """Average the gradients that any rank has."""
        ctx = self._ctx
        marks = [int(p.grad is not None) for p in self._parameters]
        used = ctx.comm.sum(torch.tensor(marks, dtype=torch.int32, device=ctx.device)).tolist()
        found = [p for p, ranks in zip(self._parameters, used, strict=True) if ranks and p.numel()]
        for dtype in dict.fromkeys(p.dtype for p in found):
            alike = [p for p in found if p.dtype is dtype]
            grads = [_dense(p).div(ctx.world_size).reshape(-1) for p in alike]
            flat_N = torch.cat(grads)
            self._collective.start(flat_N, ctx.comm).wait()
            parts = torch.split(flat_N, [p.numel() for p in alike])
            for parameter, part in zip(alike, parts, strict=True):
                parameter.grad = part.view(parameter.shape)


def _dense(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:  # this rank's share did not use it, another's did
        return torch.zeros_like(parameter)
    return parameter.grad if parameter.grad.layout is torch.strided else parameter.grad.to_dense()
