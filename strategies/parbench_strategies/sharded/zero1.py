"""ZeRO-1: every rank holds all parameters and gradients, and the optimizer state of its shard only."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduce_bytes,
    backward,
)
from parbench_strategies.sharded._flat import memory, shard_bytes
from parbench_strategies.sharded._shards import Shards


@final
class Zero1(Strategy):
    """Shards optimizer state: after backward gradients are reduce-scattered, then updated parameters all-gathered."""

    paper = Paper(
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models (Rajbhandari et al., 2020), P_os",
        "https://arxiv.org/abs/1910.02054",
    )
    agrees = "closely"
    consumes_model = True
    shards = ("optimizer state",)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """A reduce-scatter of gradients and an all-gather of parameters, each (n-1)/n P b with padding."""
        size = shard_bytes(job, ctx)
        return {"reduce_scatter": size, "all_gather": size}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """As much as data parallelism: the reduce-scatter and the all-gather are the two halves of an all-reduce."""
        return Textbook(formula="2(n-1)/n P b", sent_bytes=all_reduce_bytes(job, ctx))

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """All weights and gradients, and 1/n of the optimizer's state."""
        return memory(job, ctx, gradients_sharded=False)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Lay parameters out flat, one group per block, and give each rank the optimizer of its shards."""
        return _Zero1Trainer(job, ctx)


@final
class _Zero1Trainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._shards = Shards(job, ctx)
        super().__init__(job, ctx, [self._shards.optimizer])

    def step(self, batch: Batch) -> Tensor:
        loss = backward(self.job, self.ctx, self.job.model, batch)
        for group in reversed(self._shards.groups):
            group.reduce()
        self._shards.update()
        return loss
