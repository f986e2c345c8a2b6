"""An EnginePoint is a strategy that trains replicas with one choice on every axis of the engine's space.

fusion rule x compressor x collective x order of groups x when their averages are used
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from parbench.api import (
    Agrees,
    Collective,
    Compressor,
    Job,
    Memory,
    RankContext,
    Repeats,
    Stopwatch,
    Strategy,
    Textbook,
    Trainer,
    data_parallel,
    replicated_memory,
)
from parbench.fusion import FusionRule
from parbench_strategies.collective import Native
from parbench_strategies.compression import Nothing
from parbench_strategies.replicated._averaging import Averaging
from parbench_strategies.replicated._by_layer import ByLayer
from parbench_strategies.replicated._closed import kept_bytes, sent_bytes
from parbench_strategies.replicated._delayed import Delayed
from parbench_strategies.replicated._momentum import momentum_of, without_momentum
from parbench_strategies.replicated._starting import Axes

Use = Literal["at once", "by layer", "delayed"]


class EnginePoint(Strategy):
    """Averages gradients in groups while backward goes on.

    Args:
        fusion: which gradients are exchanged together.
        compressor: what is sent of them; it is copied for each trainer.
        collective: how it is added up.
        overlap: whether groups go while backward is at work; else all of them after it.
        order: which group goes first: the first that is ready, or the most urgent of those that are.
        halves: whether sums are shared out only once all are made.
        use: when averages are: "at once", "by layer" (before the layer's next forward), or "delayed".
        delay: steps that gradients are late, where their use is delayed.
        warmup: steps before that in which they are not.
    """

    agrees: Agrees = "closely"
    repeats: Repeats = "bitwise"
    takes_sparse = True  # they are exchanged as dense ones

    def __init__(
        self,
        fusion: FusionRule,
        compressor: Compressor | None = None,
        collective: Collective | None = None,
        *,
        overlap: bool = True,
        order: Literal["ready", "priority"] = "ready",
        halves: bool = False,
        use: Use = "at once",
        delay: int = 0,
        warmup: int = 0,
    ) -> None:
        self.fusion = fusion
        self.compressor = Nothing() if compressor is None else compressor
        self.collective = Native() if collective is None else collective
        if halves and not self.collective.halves:
            raise ValueError(f"collective={self.collective.name} cannot be cut into a reduce-scatter and an all-gather")
        self.overlap = overlap
        self.order, self.halves = order, halves
        self.use, self.delay, self.warmup = use, delay, warmup
        self.steps_together = use == "at once"
        self.agrees = "differently" if delay else self.compressor.agrees
        if fusion.needs_profile or fusion.needs_link or fusion.probes:
            # Groups follow what is measured, and in another group a gradient is added up in another order.
            self.repeats = "closely"

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Ask the collective."""
        return self.collective.refuses(world_size) if world_size > 1 else None

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Ask the collective; what a step may not use cannot be waited for later."""
        if self.use != "at once" and job.unused and ctx.world_size > 1:
            return (
                f"a step may leave {job.unused[0]!r} without a gradient, which is known only once all of backward is "
                "over; this strategy goes on before that"
            )
        return self.collective.unsupported(ctx.device.type)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """What is sent for each group; where parameters may be unused, so are the marks of which are."""
        return sent_bytes(job, ctx, self.fusion, self.compressor, self.collective, halves=self.halves)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything; gradients lie in pools alone, beside the rests of error feedback."""
        whole = replicated_memory(self._stepped(job, ctx))
        pools = 1 + self.delay if ctx.world_size > 1 else 1
        return replace(whole, gradients=pools * whole.gradients + kept_bytes(job, ctx, self.compressor))

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0 and start the engine; one rank has nobody to exchange with."""
        momentum = self._momentum(job, ctx)
        job = self._stepped(job, ctx)
        axes = Axes(
            self.fusion,
            copy.deepcopy(self.compressor),
            self.collective,
            self.overlap,
            momentum,
            order=self.order,
            halves=self.halves,
            slots=1 + self.delay,
            turns=self.use != "at once" or self.halves or self.order == "priority",
        )
        averaging = Averaging(job, ctx, axes, Stopwatch(on=ctx.device.type == "cpu"))
        if self.use == "by layer" and ctx.world_size > 1:
            return ByLayer(job, ctx, averaging)
        return Delayed(job, ctx, averaging, delay=self.delay, warmup=self.warmup)

    def _momentum(self, job: Job, ctx: RankContext) -> float:
        """Return what the compressor takes over from the optimizer."""
        return momentum_of(job) if self.compressor.momentum_correction and ctx.world_size > 1 else 0.0

    def _stepped(self, job: Job, ctx: RankContext) -> Job:
        return without_momentum(job) if self._momentum(job, ctx) else job
