"""Shards are all flat groups of a job with the optimizer of this rank's part of them."""

from __future__ import annotations

from typing import final

from torch import nn

from parbench.api import Job, RankContext
from parbench_strategies.sharded._flat import FlatGroup, members


@final
class Shards:
    """Every rank holds all parameters, and steps its shard of them.

    Parameters that a step may leave without gradient stay outside every shard, whole and replicated: an optimizer skips
    one without gradient, whereas a shard has one gradient for all its elements, and zero is not the same as none where
    weights decay.

    Attributes:
        groups: one per block, in forward order.
        parameters: of each group, the parameters in it.
        optimizer: steps this rank's shards, and whole what is outside them.
    """

    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._ctx = ctx
        self.parameters: list[list[nn.Parameter]] = [[p for _, p in group] for group in members(job)]
        self.groups = [FlatGroup(parameters, ctx) for parameters in self.parameters]
        unused = set(job.unused)
        self._rest: list[nn.Parameter] = [p for name, p in job.model.named_parameters() if name in unused]
        self.optimizer = job.optimizer([*(group.shard for group in self.groups), *self._rest])

    def update(self) -> None:
        """Complete the exchange of gradients, step this rank's shards, and give every rank the others' results."""
        for group in reversed(self.groups):
            group.wait()
        for parameter in self._rest:
            if parameter.grad is not None:
                self._ctx.comm.mean(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for group in self.groups:
            group.gather()
