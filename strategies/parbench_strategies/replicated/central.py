"""Central: one rank gathers all gradients, updates the weights and hands them back: a single parameter server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn

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
    backward,
    bytes_of,
    replicated_memory,
    stepped,
    trained_bytes,
)


@final
class Central(Strategy):
    """Gathers gradients on rank 0, which updates the weights and broadcasts them."""

    paper = Paper(
        "Modern Distributed Data-Parallel Large-Scale Pre-training Strategies For NLP models (Bai, 2022)",
        "https://arxiv.org/abs/2206.06356",
    )
    point = Point(fusion="per tensor", collective="gather and broadcast")
    agrees = "closely"
    shards = ("optimizer state",)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Workers send their gradients, the server sends the weights; gloo's broadcast tree may send them oftener."""
        if ctx.world_size == 1:
            return {}
        if ctx.rank == 0:
            return {"broadcast": Fraction(trained_bytes(job))}
        return {"gather": Fraction(bytes_of(stepped(job)))}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """The server's link carries every worker's gradients in and as many weights out; a worker sends P b."""
        if ctx.rank == 0:
            return Textbook(formula="(n-1) P b", sent_bytes=Fraction((ctx.world_size - 1) * trained_bytes(job)))
        return Textbook(formula="P b", sent_bytes=Fraction(trained_bytes(job)))

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank holds weights and gradients, only the server the optimizer's state."""
        whole = replicated_memory(job)
        return whole if ctx.rank == 0 else replace(whole, optimizer=0)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0; only rank 0 has an optimizer."""
        return _CentralTrainer(job, ctx)


@final
class _CentralTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())] if ctx.rank == 0 else [])
        self._parameters: list[nn.Parameter] = [p for p in job.model.parameters() if p.requires_grad]
        with torch.no_grad():
            for tensor in (*job.model.parameters(), *job.model.buffers()):
                ctx.comm.broadcast(tensor)

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        for parameter in self._parameters:
            if parameter.grad is not None:
                parts = self.ctx.comm.gather(parameter.grad)
                if parts:
                    parameter.grad = torch.stack(parts).mean(0)
        self.update()
        with torch.no_grad():
            for parameter in self._parameters:
                self.ctx.comm.broadcast(parameter.data)
        return loss
