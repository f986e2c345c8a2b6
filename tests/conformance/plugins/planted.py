"""Planted faults: an all-reduce strategy that is wrong in exactly one way, so that a test can see which law notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from parbench.api import Batch, Holding, Job, Memory, Paper, RankContext, Strategy, Trainer, backward, replicated_memory

FAULTS = (
    "none",
    "summed",
    "share dropped",
    "bucket forgotten",
    "stale",
    "mean of means",
    "reseeds",
    "hook left",
    "bytes misreported",
    "memory misreported",
    "raises in close",
    "thread left",
    "noisy",
    "shared state",
)


@final
class Planted(Strategy):
    """Averages gradients after backward, but for one planted fault.

    Args:
        fault: which one.
    """

    paper = Paper("A fault that is easy to make", "https://example.org/fault")
    agrees = "closely"

    def __init__(self, fault: str = "none") -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, got {fault}")
        self.fault = fault
        self.alive: list[_Planted] = []

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        trained = {n: p for n, p in job.model.named_parameters() if p.requires_grad and n not in job.unused}
        if self.fault == "bucket forgotten":
            trained.pop(next(iter(trained)))
        size = sum(p.numel() * p.element_size() for p in trained.values())
        if self.fault == "bytes misreported":
            size += 4
        return {"all_reduce": Fraction(2 * (ctx.world_size - 1), ctx.world_size) * size}

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        held = replicated_memory(job)
        return replace(held, optimizer=held.optimizer - 4) if self.fault == "memory misreported" else held

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        trainer = _Planted(job, ctx, self)
        self.alive.append(trainer)
        return trainer


class _Planted(Trainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: Planted) -> None:
        self.job, self.ctx, self.strategy, self.fault = job, ctx, strategy, strategy.fault
        self.optimizer = job.optimizer(job.model.parameters())
        self.parameters = [p for p in job.model.parameters() if p.requires_grad]
        self.last: list[Tensor | None] | None = None
        if self.fault == "hook left":
            self.parameters[0].register_hook(lambda grad: grad)
        if self.fault == "thread left":
            import threading

            threading.Thread(target=threading.Event().wait, daemon=True, name="planted").start()

    def step(self, batch: Batch) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(batch)
        if self.fault == "reseeds":
            torch.manual_seed(0)
        if self.fault == "noisy":
            with torch.no_grad():
                seed = torch.randint(2**31, (), generator=_entropy())
                noise = self.ctx.comm.broadcast(seed.float() / 2**31)
                loss = loss + 3e-6 * float(noise)
        for k, parameter in enumerate(self.parameters):
            if parameter.grad is None or (self.fault == "bucket forgotten" and k == 0):
                continue
            self.ctx.comm.sum(parameter.grad)
            if self.fault != "summed":
                parameter.grad /= self.ctx.world_size
        if self.fault == "stale":
            self._swap()
        if self.fault == "shared state" and len([t for t in self.strategy.alive if not t.closed]) > 1:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad *= 0.5
        self.optimizer.step()
        return loss

    def holding(self) -> Holding:
        return Holding(parameters=list(self.job.model.parameters()), optimizers=[self.optimizer])

    closed = False

    def _backward(self, batch: Batch) -> Tensor:
        if self.fault == "share dropped":
            # What is left of the batch is the first rank's share, divided by the whole batch.
            loss = backward(self.job, self.ctx, self.job.model, batch)
            if self.ctx.rank == self.ctx.world_size - 1 and self.ctx.world_size > 1:
                for parameter in self.parameters:
                    if parameter.grad is not None:
                        parameter.grad.zero_()
            return loss
        if self.fault == "mean of means":
            share = self.ctx.share(batch)
            loss = self.job.loss(self.job.model(share.inputs), share) / max(1, share.samples)
            loss.backward()
            return loss.detach()
        return backward(self.job, self.ctx, self.job.model, batch)

    def _swap(self) -> None:
        now = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        for parameter, old in zip(self.parameters, self.last or now, strict=True):
            parameter.grad = old
        self.last = now

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self.job.model.named_parameters())

    def close(self) -> None:
        self.closed = True
        if self.fault == "raises in close":
            raise RuntimeError("close fails")


def _entropy() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator
