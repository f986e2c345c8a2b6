"""An engine starts from a job and a choice on every axis: weights are made equal, the link measured, a plan agreed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import torch

from parbench.api import Collective, Compressor, Job, RankContext, Stopwatch, trained_bytes
from parbench.fusion import FusionRule
from parbench_strategies.replicated._agreement import Word
from parbench_strategies.replicated._engine import Engine
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._measuring import measured_points
from parbench_strategies.replicated._members import members
from parbench_strategies.replicated._optional import Optional
from parbench_strategies.replicated._order import AsReady, Board, Chosen, Ordering
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
        order: which group goes first: the first that is ready, or the most urgent of those that are.
        halves: whether sums are shared out only once all are made.
        slots: steps whose gradients may be on their way at once.
        turns: whether groups are waited for one by one; overtaking, halves and slots need it.
    """

    fusion: FusionRule
    compressor: Compressor
    collective: Collective
    overlap: bool
    momentum: float = 0.0
    order: Literal["ready", "priority"] = "ready"
    halves: bool = False
    slots: int = 1
    turns: bool = False


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
    word = Word(group, ctx.comm, ctx.device)
    planner = Planner(axes.fusion, used, axes.compressor, word, points)
    board = Board(group, f"{word.name}/order") if axes.order == "priority" else None
    return Engine(
        used,
        Optional(optional, collective, ctx),
        ctx,
        planner,
        Exchanger(collective, axes.compressor, ctx.comm, stopwatch, axes.momentum),
        overlap=axes.overlap,
        stopwatch=stopwatch,
        ordering=_ordering(board) if axes.turns or board is not None else None,
        halves=axes.halves,
        slots=axes.slots,
        board=board,
    )


def _ordering(board: Board | None) -> Ordering:
    if board is None:
        return lambda priorities: AsReady()
    steps = itertools.count()
    return lambda priorities: Chosen(priorities, board, next(steps))
