"""A FlatGroup keeps the parameters of one block in one flat buffer, of which each rank owns an equal shard.

    parameters   | w1        | b1 | w2     | padding |      every rank holds all of it; the tensors are views
    shards       |  rank 0   |  rank 1  |  rank 2   |      each rank's optimizer holds one

P padded elements, n ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import final

import torch
from torch import nn

from parbench.api import Handle, Job, Memory, RankContext, bytes_of, optimizer_bytes, shared_out


def members(job: Job) -> list[list[tuple[str, nn.Parameter]]]:
    """Return the trainable parameters that every step uses, one list per block, shared ones with their first block."""
    names = {id(p): name for name, p in job.model.named_parameters()}
    skipped = set(job.unused)
    taken: set[int] = set()
    groups = []
    for block in job.blocks:
        found = []
        for parameter in job.model.get_submodule(block).parameters():
            name = names[id(parameter)]
            if parameter.requires_grad and name not in skipped and id(parameter) not in taken:
                taken.add(id(parameter))
                found.append((name, parameter))
        if found:
            groups.append(found)
    return groups


def padded(parameters: Sequence[nn.Parameter], world_size: int) -> int:
    """Return the elements of a group, rounded up so that every rank owns as many."""
    return -(-sum(p.numel() for p in parameters) // world_size) * world_size


def padded_bytes(job: Job, ctx: RankContext) -> int:
    """Return the bytes of all groups, each rounded up so that every rank owns as many elements."""
    groups = [[p for _, p in group] for group in members(job)]
    return sum(padded(group, ctx.world_size) * group[0].element_size() for group in groups)


def shard_bytes(job: Job, ctx: RankContext) -> Fraction:
    """Return what an all-gather (and a reduce-scatter) of every group sends per rank: (n-1)/n P b, padding included."""
    return shared_out(padded_bytes(job, ctx), ctx.world_size)


def memory(job: Job, ctx: RankContext, *, gradients_sharded: bool) -> Memory:
    """Return what a rank holds: all weights, the state of its shards, and whole what a step may leave out."""
    n = ctx.world_size
    named = dict(job.model.named_parameters())
    rest = [named[name] for name in job.unused]
    flat = padded_bytes(job, ctx)
    flattened = {name for group in members(job) for name, _ in group}
    frozen = [p for name, p in named.items() if name not in flattened and name not in job.unused]
    return Memory(
        parameters=flat + bytes_of(rest) + bytes_of(frozen),
        gradients=flat // n if gradients_sharded else flat,
        optimizer=optimizer_bytes(job, (padded([p for _, p in group], n) // n for group in members(job))),
        buffers=bytes_of(job.model.buffers()),
    )


@final
class FlatGroup:
    """One block's parameters, flat and sharded.

    Attributes:
        shard: this rank's part, (P/n,), as the parameter its optimizer steps.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ctx: RankContext) -> None:
        self._ctx = ctx
        self._parameters = list(parameters)
        size = padded(parameters, ctx.world_size)
        like = parameters[0]
        self._whole_P = torch.zeros(size, dtype=like.dtype, device=like.device)
        start = 0
        with torch.no_grad():
            for parameter in parameters:
                view = self._whole_P[start : start + parameter.numel()].view_as(parameter)
                view.copy_(parameter)
                parameter.data = view
                start += parameter.numel()
            ctx.comm.broadcast(self._whole_P)
        length = size // ctx.world_size
        own = slice(ctx.rank * length, (ctx.rank + 1) * length)
        self._own_P = self._whole_P[own]
        # A view: what the optimizer steps is at once in the buffer that is gathered.
        self.shard = nn.Parameter(self._own_P)
        self._handles: list[Handle] = []

    def reduce(self) -> None:
        """Start averaging the gradients; each rank keeps its shard of them, and the whole ones are freed."""
        grad_P = torch.zeros_like(self._whole_P)
        start = 0
        for parameter in self._parameters:
            if parameter.grad is not None:
                grad_P[start : start + parameter.numel()].copy_(parameter.grad.reshape(-1))
                parameter.grad = None
            start += parameter.numel()
        self._handles.append(self._ctx.comm.reduce_scatter_async(torch.empty_like(self._own_P), grad_P))

    def wait(self) -> None:
        """Complete the averaging of every micro-batch and add them up; the optimizer may step then."""
        for handle in self._handles:
            part_P = handle.wait()
            self.shard.grad = part_P if self.shard.grad is None else self.shard.grad.add_(part_P)
        self._handles.clear()

    def gather(self) -> None:
        """Give every rank the shards that the others' optimizers have stepped."""
        self._ctx.comm.all_gather_flat(self._whole_P, self._own_P)
