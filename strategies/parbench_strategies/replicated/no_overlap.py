"""No overlap: one all-reduce per parameter after the whole backward, the baseline that overlap is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward


@final
class NoOverlap(Strategy):
    """Averages gradients one parameter at a time, after the whole backward."""

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020), section 3.2.1",
        "https://arxiv.org/abs/2006.15704",
    )
    agrees = "closely"

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Every gradient is all-reduced once; parameters without one are left out, on all ranks alike."""
        skipped = set(job.unused)
        size = sum(
            p.numel() * p.element_size()
            for name, p in job.model.named_parameters()
            if p.requires_grad and name not in skipped
        )
        return {"all_reduce": Fraction(2 * (ctx.world_size - 1), ctx.world_size) * size}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0 and exchange gradients after backward."""
        return _NoOverlapTrainer(job, ctx)


@final
class _NoOverlapTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        self._ctx = ctx
        self._parameters = [p for p in job.model.parameters() if p.requires_grad]
        self._optimizer = job.optimizer(job.model.parameters())
        with torch.no_grad():
            for tensor in (*job.model.parameters(), *job.model.buffers()):
                ctx.comm.broadcast(tensor)

    def step(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = backward(self._job, self._ctx, self._job.model, batch)
        for parameter in self._parameters:
            if parameter.grad is not None:
                self._ctx.comm.mean(parameter.grad)
        self._optimizer.step()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self._job.model.named_parameters())
