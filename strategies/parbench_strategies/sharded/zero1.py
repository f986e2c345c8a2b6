"""ZeRO-1: every rank holds all parameters and gradients, and the optimizer state of its shard only."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward
from parbench_strategies.sharded._flat import shard_bytes
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

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """A reduce-scatter of gradients and an all-gather of parameters, each (n-1)/n P b with padding."""
        size = shard_bytes(job, ctx)
        return {"reduce_scatter": size, "all_gather": size}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Lay parameters out flat, one group per block, and give each rank the optimizer of its shards."""
        return _Zero1Trainer(job, ctx)


@final
class _Zero1Trainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        self._ctx = ctx
        self._shards = Shards(job, ctx)

    def step(self, batch: Batch) -> Tensor:
        loss = backward(self._job, self._ctx, self._job.model, batch)
        for group in reversed(self._shards.groups):
            group.reduce()
        self._shards.update()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self._job.model.named_parameters())
