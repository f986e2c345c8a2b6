"""Horovod-like: every cycle a background thread fuses and all-reduces the gradients that are ready on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    Point,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduced,
    backward,
    bytes_of,
    data_parallel,
    replicated_memory,
    stepped,
    trained_bytes,
)
from parbench_strategies.replicated._exchange import Exchange

_MIB = 2**20


@final
class HorovodLike(Strategy):
    """All-reduces, in a background thread, a buffer of whatever gradients are ready on all ranks every cycle.

    Horovod's rank 0 gathers what is ready from all ranks and broadcasts what to reduce (over MPI or gloo), every
    cycle, also when nothing is; a cache of replies spares most of that later on. Here the same messages go through
    the process group's key-value store, from a step's first gradient to its last, and there is no cache.

    Args:
        cycle_time_ms: time from one negotiation to the next; longer fuses more and starts later.
        fusion_buffer_mb: size of the buffer in MiB; a larger gradient is reduced by itself, in place.
    """

    paper = Paper(
        "Horovod: fast and easy distributed deep learning in TensorFlow (Sergeev and Del Balso, 2018)",
        "https://arxiv.org/abs/1802.05799",
    )
    point = Point(fusion="what is ready in a cycle, up to a buffer", order="as all ranks are ready")
    agrees = "closely"
    # Timing decides what is fused, which moves a gradient in the buffer; a ring adds each part in another order.
    repeats = "closely"

    def __init__(self, cycle_time_ms: float = 1.0, fusion_buffer_mb: float = 64.0) -> None:
        if not 0 <= cycle_time_ms <= 1000:
            raise ValueError(f"cycle_time_ms must be from 0 to 1000 (a second), got {cycle_time_ms}")
        if not 0 <= fusion_buffer_mb < 1e6:
            raise ValueError(f"fusion_buffer_mb must be from 0 (no fusion) to below 1e6, got {fusion_buffer_mb}")
        self.cycle_time_ms = cycle_time_ms
        self.fusion_buffer_mb = fusion_buffer_mb

    @property
    def capacity(self) -> int:
        """Bytes of the fusion buffer."""
        return int(self.fusion_buffer_mb * _MIB)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Every gradient is all-reduced once, however they are fused; negotiation is not counted."""
        return {"all_reduce": all_reduced(bytes_of(stepped(job)), ctx.world_size)}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything, and the fusion buffer holds gradients a second time, as many as it takes."""
        whole = replicated_memory(job)
        buffer = min(self.capacity, trained_bytes(job)) if ctx.world_size > 1 else 0
        return replace(whole, gradients=whole.gradients + buffer)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0 and start the thread; one rank has nobody to exchange with."""
        return _HorovodLikeTrainer(job, ctx, self)


@final
class _HorovodLikeTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: HorovodLike) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._exchange: Exchange | None = None
        if ctx.comm.group is not None:
            with torch.no_grad():
                for tensor in (*job.model.parameters(), *job.model.buffers()):
                    ctx.comm.broadcast(tensor)
            trained = [p for p in job.model.parameters() if p.requires_grad]
            self._exchange = Exchange(trained, ctx, ctx.comm.group, strategy.cycle_time_ms / 1000, strategy.capacity)

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        exchange = self._exchange
        if exchange is None:
            loss = backward(self.job, self.ctx, self.job.model, batch)
        else:
            exchange.begin()
            loss = backward(self.job, self.ctx, self.job.model, batch, hold=exchange.hold)
            exchange.finish()
        self.update()
        return loss

    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
