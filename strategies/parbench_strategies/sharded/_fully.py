"""What fsdp and hsdp share: a model that a row of ranks shares out, and copies of it in the other rows."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    backward,
)
from parbench_strategies.sharded import _forms
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options
from parbench_strategies.sharded._trainer import ShardedTrainer


class FullySharded(Strategy):
    """Shards parameters, gradients and optimizer state over the rows of a grid of ranks.

    Args:
        options: what the strategy was told.
    """

    agrees = "closely"
    consumes_model = True
    shards = ("parameters", "gradients", "optimizer state")

    def __init__(self, options: Options) -> None:
        self.options = options

    @abc.abstractmethod
    def grid(self, world_size: int) -> Grid:
        """Return how so many ranks are laid out."""

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where an option cannot be had on this device, in this precision or without shards."""
        return self.options.unsupported(job, ctx, self.grid(ctx.world_size).shards)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Gathers of parameters and one reduction of gradients, padding included."""
        return _forms.traffic(job, ctx, self.grid(ctx.world_size), self.options)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """Each gather and the reduce-scatter move a ring's share of the model."""
        return _forms.textbook(job, ctx, self.grid(ctx.world_size), self.options)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """This rank's chunk of everything, padding included."""
        return _forms.memory(job, ctx, self.grid(ctx.world_size), self.options)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut the model unit by unit; where a rank holds a whole copy there is nothing to cut, and DDP averages."""
        grid = self.grid(ctx.world_size)
        if grid.shards == 1:
            return _WholeTrainer(job, ctx)
        return ShardedTrainer(job, ctx, grid, self.options)


@final
class _WholeTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._ddp = _replicated(job, ctx) if ctx.comm.group is not None else None

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        if self._ddp is None:
            loss = backward(self.job, self.ctx, self.job.model, batch)
        else:
            loss = backward(self.job, self.ctx, self._ddp, batch, hold=self._ddp.no_sync)
        self.update()
        return loss

    def close(self) -> None:
        # A wrapper alive when its process group is destroyed can hang the rank.
        self._ddp = None


def _replicated(job: Job, ctx: RankContext) -> DistributedDataParallel:
    return DistributedDataParallel(
        job.model,
        device_ids=[ctx.device.index or 0] if ctx.device.type == "cuda" else None,
        process_group=ctx.comm.group,
        find_unused_parameters=bool(job.unused),
    )
