"""Replicated data parallelism, taken apart: how gradients are grouped, compressed and added up, each for choice.

rank 0   whole model, its share of the batch ─┐  groups of gradients,   ┌─ average ─> the same step on every rank
rank 1   whole model, its share of the batch ─┘  compressed, added up   └─ average ─>
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import (
    Agrees,
    Batch,
    Collective,
    Compressor,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    RankContext,
    Repeats,
    Stopwatch,
    Strategy,
    Textbook,
    Trainer,
    backward,
    data_parallel,
    replicated_memory,
)
from parbench.fusion import FusionRule
from parbench_strategies.collective import Native
from parbench_strategies.compression import Nothing
from parbench_strategies.fusion import Buckets
from parbench_strategies.replicated._closed import kept_bytes, sent_bytes
from parbench_strategies.replicated._momentum import momentum_of, without_momentum
from parbench_strategies.replicated._starting import Axes, engine_of


@final
class Replicated(Strategy):
    """Averages gradients in groups while backward goes on: any fusion rule, compressor and collective.

    Args:
        fusion: which gradients are exchanged together (`parbench list fusions`).
        compressor: what is sent of them (`parbench list compressors`).
        collective: how it is added up (`parbench list collectives`).
        overlap: whether groups go while backward is at work; else all of them after it.
    """

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    agrees: Agrees = "closely"
    repeats: Repeats = "bitwise"
    takes_sparse = True  # they are exchanged as dense ones

    def __init__(
        self,
        fusion: FusionRule = Buckets(),  # noqa: B008 - it has no state
        compressor: Compressor = Nothing(),  # noqa: B008 - it is copied for each trainer
        collective: Collective = Native(),  # noqa: B008 - it has no state
        overlap: bool = True,
    ) -> None:
        self.fusion = fusion
        self.compressor = compressor
        self.collective = collective
        self.overlap = overlap
        self.agrees = compressor.agrees
        if fusion.needs_profile or fusion.needs_link or fusion.probes:
            # Groups follow what is measured, and in another group a gradient is added up in another order.
            self.repeats = "closely"

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Ask the collective."""
        return self.collective.refuses(world_size) if world_size > 1 else None

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Ask the collective."""
        return self.collective.unsupported(ctx.device.type)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """What is sent for each group; where parameters may be unused, so are the marks of which are."""
        return sent_bytes(job, ctx, self.fusion, self.compressor, self.collective)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything; gradients lie in the pool alone, beside the rests of error feedback."""
        whole = replicated_memory(self._stepped(job, ctx))
        return replace(whole, gradients=whole.gradients + kept_bytes(job, ctx, self.compressor))

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0 and start the engine; one rank has nobody to exchange with."""
        return _ReplicatedTrainer(self._stepped(job, ctx), ctx, self, self._momentum(job, ctx))

    def _momentum(self, job: Job, ctx: RankContext) -> float:
        """Return what the compressor takes over from the optimizer."""
        return momentum_of(job) if self.compressor.momentum_correction and ctx.world_size > 1 else 0.0

    def _stepped(self, job: Job, ctx: RankContext) -> Job:
        return without_momentum(job) if self._momentum(job, ctx) else job


@final
class _ReplicatedTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: Replicated, momentum: float) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._stopwatch = Stopwatch(on=ctx.device.type == "cpu")
        axes = Axes(
            strategy.fusion, copy.deepcopy(strategy.compressor), strategy.collective, strategy.overlap, momentum
        )
        self._engine = engine_of(job, ctx, axes, self._stopwatch)
        self._compressed: dict[str, str | float] = {}
        if self._engine is not None and not strategy.compressor.passes_through:
            self._compressed["compressor"] = strategy.compressor.name
            dense = sent_bytes(job, ctx, strategy.fusion, Nothing(), strategy.collective)
            if dense is not None:
                self._compressed["dense_bytes"] = float(sum(dense.values()))

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        engine = self._engine
        if engine is None:
            loss = backward(self.job, self.ctx, self.job.model, batch)
        else:
            engine.begin()
            loss = backward(self.job, self.ctx, self.job.model, batch, hold=engine.hold)
            engine.finish()
        self.update()
        return loss

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the plan, what it is about, and where a step's exchange spends its time on this rank."""
        if self._engine is None:
            return {}
        return {**self._engine.notes(), **self._compressed, **self._stopwatch.means()}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
