"""Central: one rank gathers all gradients, updates the weights and hands them back: a single parameter server."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward


@final
class Central(Strategy):
    """Gathers gradients on rank 0, which updates the weights and broadcasts them."""

    paper = Paper(
        "Modern Distributed Data-Parallel Large-Scale Pre-training Strategies For NLP models (Bai, 2022)",
        "https://arxiv.org/abs/2206.06356",
    )
    agrees = "closely"

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Workers send their gradients, the server sends the weights; gloo's broadcast tree may send them oftener."""
        skipped = set(job.unused)
        named = [(n, p) for n, p in job.model.named_parameters() if p.requires_grad]
        sent = Fraction(sum(p.numel() * p.element_size() for n, p in named if n not in skipped))
        held = Fraction(sum(p.numel() * p.element_size() for _, p in named))
        if ctx.world_size == 1:
            return {}
        return {"broadcast": held} if ctx.rank == 0 else {"gather": sent}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0; only rank 0 has an optimizer."""
        return _CentralTrainer(job, ctx)


@final
class _CentralTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        self._ctx = ctx
        self._parameters: list[nn.Parameter] = [p for p in job.model.parameters() if p.requires_grad]
        self._optimizer = job.optimizer(job.model.parameters()) if ctx.rank == 0 else None
        with torch.no_grad():
            for tensor in (*job.model.parameters(), *job.model.buffers()):
                ctx.comm.broadcast(tensor)

    def step(self, batch: Batch) -> Tensor:
        for parameter in self._parameters:
            parameter.grad = None
        loss = backward(self._job, self._ctx, self._job.model, batch)
        for parameter in self._parameters:
            if parameter.grad is not None:
                parts = self._ctx.comm.gather(parameter.grad)
                if parts:
                    parameter.grad = torch.stack(parts).mean(0)
        if self._optimizer is not None:
            self._optimizer.step()
        with torch.no_grad():
            for parameter in self._parameters:
                self._ctx.comm.broadcast(parameter.data)
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self._job.model.named_parameters())
