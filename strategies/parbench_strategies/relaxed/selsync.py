"""SelSync: ranks take a step by themselves unless the gradient of any has changed much; then they synchronise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, final

import torch
from torch import Tensor

from parbench.api import (
    Agrees,
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
from parbench_strategies.relaxed._averaging import average, averaged, drifting, start_equal
from parbench_strategies.relaxed._closed import MOST_STEPS, averaged_bytes
from parbench_strategies.relaxed._injection import Injection
from parbench_strategies.relaxed._partition import Partition, portion, refusal
from parbench_strategies.relaxed._significance import Significance

Aggregate = Literal["params", "grads"]

_COUNTED: Final = 5  # steps of a round, unless told otherwise


@final
class Selsync(Strategy):
    """Synchronises a step if the gradient of any rank has changed by `delta` or more; else each steps by itself.

    Until the window is full every step is synchronised, as in the authors' code, and nobody votes; nor with a `delta`
    of 0 (every step is synchronised) or inf (none ever is). Momenta stay each rank's own.

    Args:
        delta: the relative change of a rank's smoothed squared gradient norm from which it votes to synchronise.
        window: steps that are smoothed over.
        aggregate: what a synchronised step averages: "params" after the local step (the paper's choice), or "grads"
            before it, which leaves weights apart that local steps have driven apart.
        partition: which samples a rank sees: its "shares", drawn anew in every epoch; its own of fixed "chunks" (the
            paper's DefDP); all of them, each rank in another order ("rotated": SelDP); or some "labels" only.
        alpha: the part of the ranks that lend samples to all others in a step, drawn anew (data injection).
        beta: the part of its samples that a rank lends.
    """

    paper = Paper(
        "Accelerating Distributed ML Training via Selective Synchronization (Tyagi and Swany, 2023)",
        "https://arxiv.org/abs/2307.07950",
    )
    point = Point(fusion="the model as one message", synchrony="on demand: where gradients change")
    agrees: Agrees = "differently"

    def __init__(
        self,
        delta: float = 0.3,
        window: int = 25,
        aggregate: Aggregate = "params",
        partition: Partition = "shares",
        alpha: float = 0.0,
        beta: float = 0.0,
    ) -> None:
        if not delta >= 0:
            raise ValueError(f"delta must be 0 (every step is synchronised) or more, up to inf (none is), got {delta}")
        if not 1 <= window <= MOST_STEPS:
            raise ValueError(f"window must be from 1 to {MOST_STEPS} steps, got {window}")
        self.delta = delta
        self.window = window
        self.aggregate: Aggregate = aggregate
        self.partition: Partition = partition
        self.injection = Injection(alpha, beta)
        # In all other cases the mean over ranks is of the same samples, a batch's, whoever sees which.
        same_samples = partition in ("shares", "labels") and not self.injection
        if delta == 0 and aggregate == "grads" and same_samples:
            self.agrees = "closely"  # every gradient is averaged, whatever the optimizer makes of it

    @property
    def period(self) -> int:
        """Some steps that are synchronised and some that are not: what one alone takes and sends would say little."""
        return min(self.window, _COUNTED) if 0 < self.delta < math.inf else 1

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Ask whether the data can be partitioned so."""
        return refusal(self.partition, job)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """Where gradients decide which steps are synchronised, or chance who lends, there is no closed form."""
        if ctx.world_size == 1:
            return {}
        if self.injection or 0 < self.delta < math.inf:
            return None
        if self.delta == math.inf:
            return {}
        if self.aggregate == "params":
            return averaged_bytes(job, ctx, period=1)
        return {"all_reduce": all_reduced(bytes_of(stepped(job)), ctx.world_size)}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook | None:
        """A ring all-reduce of all weights in every step that is synchronised: its part of all steps is not known."""
        if self.delta == math.inf:
            return Textbook(formula="0", sent_bytes=Fraction(0))
        return data_parallel(job, ctx) if self.delta == 0 else None

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0."""
        return _SelsyncTrainer(job, ctx, self)


@final
class _SelsyncTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: Selsync) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        start_equal(job.model, ctx.comm)
        self._strategy = strategy
        self._significance = Significance(strategy.window)
        self._steps = self._synchronised = self._votes = self._left_out = 0
        self._change = math.inf
        self._equal = True

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = self._backward(batch)
        grads = [p.grad for p in self.job.model.parameters() if p.grad is not None]
        together = self._agree(grads)
        whole = self._strategy.aggregate == "params"
        if together and not whole:
            average(grads, self.ctx.comm)
        self.update()
        if together and whole:
            average(drifting(self.job.model), self.ctx.comm)
        self._steps += 1
        self._synchronised += together
        self._equal = together and (whole or self._equal)
        return loss

    def _backward(self, batch: Batch) -> Tensor:
        strategy, ctx = self._strategy, self.ctx
        share = portion(strategy.partition, self.job, self._steps, batch, ctx.rank, ctx.world_size).to(ctx.device)
        samples = batch.samples
        if strategy.injection and ctx.world_size > 1:
            share, samples, left_out = strategy.injection.mixed(share, samples, self._steps, ctx)
            self._left_out += left_out
        return backward(self.job, ctx, self.job.model, batch, share=share, samples=samples)

    def left_out(self) -> int:
        """Return how many samples made room for those that others lend."""
        return self._left_out

    def _agree(self, grads: list[Tensor]) -> bool:
        """Return whether this step is synchronised: the same on every rank."""
        strategy = self._strategy
        if strategy.delta in (0, math.inf):
            return strategy.delta == 0
        self._change = self._significance.of(float(torch.nn.utils.get_total_norm(grads)) ** 2)
        if self._steps < strategy.window:
            return True
        vote = int(self._change >= strategy.delta)
        self._votes += vote
        return bool(self.ctx.comm.sum(torch.tensor([vote], device=self.ctx.device)).item())

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return the mean over ranks."""
        mine = super().full_parameters()
        return mine if self._equal else averaged(mine.items(), self.ctx.comm)

    def full_buffers(self) -> Mapping[str, Tensor]:
        """Return the mean over ranks."""
        return averaged(super().full_buffers().items(), self.ctx.comm)

    def notes(self) -> Mapping[str, str | int | float]:
        """Return which steps were synchronised, as LSSR (local steps per step), and this rank's votes for that."""
        lssr = 1 - self._synchronised / self._steps if self._steps else 0.0
        known = {} if math.isinf(self._change) else {"last_change": self._change}
        return {"synchronised_steps": self._synchronised, "lssr": lssr, "votes": self._votes, **known}
