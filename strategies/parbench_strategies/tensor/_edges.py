"""An Edge is where activations enter or leave what a tensor group shares out, and what is exchanged there.

                    forward          backward
    COPY            -                all-reduce         every rank has x whole; each gives a part of its gradient
    SUM             all-reduce       -                  every rank has a term of y
    GATHER          all-gather       reduce-scatter     as COPY, where x is shared out by position
    SCATTER         reduce-scatter   all-gather         as SUM, where y is to be shared out by position
    SPLIT           own positions    all-gather         from whole to shared out
    JOIN            all-gather       own positions      and back, where every rank repeats what follows

B samples, T positions (dim 1), D width, n ranks of the group. COPY and SUM are f and g of Shoeybi et al. 2019,
GATHER and SCATTER g and g-bar of Korthikanti et al. 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, final

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from parbench.api import Comm

Move = Literal["keep", "own", "all_reduce", "all_gather", "reduce_scatter"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What is done to what passes.

    Attributes:
        there: in forward.
        back: to the gradient, in backward.
    """

    there: Move
    back: Move


COPY: Final = Edge(there="keep", back="all_reduce")
SUM: Final = Edge(there="all_reduce", back="keep")
GATHER: Final = Edge(there="all_gather", back="reduce_scatter")
SCATTER: Final = Edge(there="reduce_scatter", back="all_gather")
SPLIT: Final = Edge(there="own", back="all_gather")
JOIN: Final = Edge(there="all_gather", back="own")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def passed(edge: Edge, x: Tensor, comm: Comm) -> Tensor:
    """Take `x` across `edge`; its gradient will come back across it."""
    crossed: Tensor = _Crossing.apply(x, edge, comm)  # type: ignore[no-untyped-call]
    return crossed


class _Context(FunctionCtx):
    edge: Edge
    comm: Comm


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, edge: Edge, comm: Comm) -> Tensor:
        ctx.edge, ctx.comm = edge, comm
        return _MOVES[edge.there](x, comm)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None, None]:
        return _MOVES[ctx.edge.back](grad, ctx.comm), None, None


def _keep(x: Tensor, comm: Comm) -> Tensor:
    return x.view_as(x)


def _own(x_BTD: Tensor, comm: Comm) -> Tensor:
    return x_BTD.chunk(comm.world_size, 1)[comm.rank].contiguous()


def _all_reduce(x: Tensor, comm: Comm) -> Tensor:
    # A copy: autograd may have handed the same tensor to a residual connection too.
    total = x.clone(memory_format=torch.contiguous_format)
    return comm.sum(total) if x.numel() else total


def _all_gather(part_BTD: Tensor, comm: Comm) -> Tensor:
    parts = comm.all_gather(part_BTD.contiguous()) if part_BTD.numel() else [part_BTD] * comm.world_size
    return torch.cat(parts, 1)


def _reduce_scatter(x_BTD: Tensor, comm: Comm) -> Tensor:
    parts_nBTD = torch.stack(x_BTD.chunk(comm.world_size, 1))
    own_BTD = torch.empty_like(parts_nBTD[0])
    if x_BTD.numel():
        sent = comm.reduce_scatter_async(own_BTD.view(-1), parts_nBTD.view(-1))
        replace(sent, divide_by=1).wait()  # the sum, not the mean
    return own_BTD


_MOVES: Final[Mapping[Move, Callable[[Tensor, Comm], Tensor]]] = {
    "keep": _keep,
    "own": _own,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
}
