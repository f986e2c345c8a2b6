"""A rehearsal takes one step's micro-batches through a rank's stages as shapes, without any other rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from parbench.api import Comm, Job, RankContext
from parbench_strategies.pipelined._boundaries import Boundary, boundaries
from parbench_strategies.pipelined._cutting import Cutting
from parbench_strategies.pipelined._grid import Grid
from parbench_strategies.pipelined._replicas import Replicas
from parbench_strategies.pipelined._runtime import Runtime
from parbench_strategies.pipelined._stages import Layout, stages_of
from parbench_strategies.tensor import without_values


def rehearse(
    job: Job, ctx: RankContext, grid: Grid, layout: Layout, given: Sequence[Boundary], microbatches: int
) -> None:
    """Do every action of this rank in a step; hooks on the blocks see what passes.

    Args:
        job: its model may be on any device.
        ctx: this rank.
        grid: where it stands.
        layout: which rank holds which blocks.
        given: what each block gives.
        microbatches: into which a pass is cut.
    """
    without_values(job.model, lambda: _run(job, ctx, grid, layout, given, microbatches))


def indivisible(job: Job, ctx: RankContext, cutting: Cutting, ranks: int) -> str | None:
    """Return a sentence where a schedule takes backward in halves and this job cannot be taken so, or None.

    The answer is the same on every rank: the two ends of a pipeline are rehearsed.
    """
    if not cutting.halves(ranks):
        return None
    given = boundaries(job, ctx)
    layout = replace(cutting, split="count").layout(job, ctx, given, ranks, 1)
    for place in (0, ranks - 1):
        grid = Grid(replicas=1, ranks=ranks, replica=0, place=place, pipeline=range(ranks), peers=(place,))
        try:
            rehearse(job, ctx, grid, layout, given, cutting.microbatches)
        except RuntimeError as error:
            return (
                f"schedule={cutting.schedule.name} takes backward in halves, which does not go with this job or its "
                f"recomputation ({' '.join(str(error).split())[:160]}); use a schedule of whole backwards, such as 1f1b"
            )
    return None


def _run(job: Job, ctx: RankContext, grid: Grid, layout: Layout, given: Sequence[Boundary], microbatches: int) -> None:
    meta = torch.device("meta")
    # Nothing is sent to no group, and what is received from it is left as it was made. Autocast does not know shapes.
    alone = Comm(None, grid.place, grid.ranks)
    here = replace(ctx, rank=grid.place, world_size=grid.ranks, comm=alone, device=meta, dtype=torch.float32)
    uncast = [one.uncast() for one in given]
    stages = stages_of(job, layout, grid.place, uncast)
    runtime = Runtime(job, here, layout, stages, uncast, Replicas(Comm(None, 0, 1)))
    for part in grid.share(job.batch(0)).to(meta).micro(ctx.accumulate):
        runtime.run(list(part.micro(microbatches)), 1.0, last=False)
