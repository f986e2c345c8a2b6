"""An engine starts from a job and a choice on every axis: weights are made equal, the link measured, a plan agreed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from parbench.api import Collective, Compressor, Job, RankContext, Stopwatch, trained_bytes
from parbench.fusion import FusionRule
from parbench_strategies.replicated._agreement import Word
from parbench_strategies.replicated._engine import Engine
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._measuring import measured_points
from parbench_strategies.replicated._members import members
from parbench_strategies.replicated._optional import Optional
from parbench_strategies.replicated._planning import Planner


@dataclass(frozen=True, slots=True)
class Axes:
    """A point of the engine's space.

    Attributes:
        fusion: which gradients are exchanged together.
        compressor: what is sent of them; of this trainer alone, since it may keep state.
        collective: how it is added up.
        overlap: whether it is while backward is at work.
        momentum: of the optimizer, if it goes before compression.
    """

    fusion: FusionRule
    compressor: Compressor
    collective: Collective
    overlap: bool
    momentum: float = 0.0


def engine_of(job: Job, ctx: RankContext, axes: Axes, stopwatch: Stopwatch) -> Engine | None:
    """Give every rank the weights of rank 0, and return what averages their gradients; None for one rank.

    Args:
        job: whose model is trained.
        ctx: this rank.
        axes: how gradients are exchanged.
        stopwatch: told what takes how long.
    """
    group = ctx.comm.group
    if group is None:
        return None
    with torch.no_grad():
        for tensor in (*job.model.parameters(), *job.model.buffers()):
            ctx.comm.broadcast(tensor)
    used, optional = members(job)
    collective = axes.collective.connected(ctx.comm)
    axes.compressor.begin(rank=ctx.rank, world_size=ctx.world_size, seed=ctx.generator.initial_seed())
    points = measured_points(collective, ctx.comm, ctx.device, trained_bytes(job)) if axes.fusion.needs_link else ()
    planner = Planner(axes.fusion, used, axes.compressor, Word(group, ctx.comm, ctx.device), points)
    return Engine(
        used,
        Optional(optional, collective, ctx),
        ctx,
        planner,
        Exchanger(collective, axes.compressor, ctx.comm, stopwatch, axes.momentum),
        overlap=axes.overlap,
        stopwatch=stopwatch,
    )
