"""No overlap: one all-reduce per parameter after the whole backward, the baseline that overlap is measured against."""

from __future__ import annotations

from collections.abc import Mapping
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
)


@final
class NoOverlap(Strategy):
    """Averages gradients one parameter at a time, after the whole backward."""

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020), section 3.2.1",
        "https://arxiv.org/abs/2006.15704",
    )
    point = Point(fusion="per tensor", order="after backward")
    agrees = "closely"

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Every gradient is all-reduced once; parameters without one are left out, on all ranks alike."""
        return {"all_reduce": all_reduced(bytes_of(stepped(job)), ctx.world_size)}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0 and exchange gradients after backward."""
        return _NoOverlapTrainer(job, ctx)


@final
class _NoOverlapTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._parameters = [p for p in job.model.parameters() if p.requires_grad]
        with torch.no_grad():
            for tensor in (*job.model.parameters(), *job.model.buffers()):
                ctx.comm.broadcast(tensor)

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        for parameter in self._parameters:
            if parameter.grad is not None:
                self.ctx.comm.mean(parameter.grad)
        self.update()
        return loss
