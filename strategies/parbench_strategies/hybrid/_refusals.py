"""Refusals say, before any rank starts, why a job cannot be spread over a mesh, in the words of each family."""

from __future__ import annotations

from torch import nn

from parbench.api import Job, RankContext
from parbench_strategies.hybrid._design import Design
from parbench_strategies.pipelined import boundaries, indivisible, stages_of
from parbench_strategies.tensor import refusal as tensor_refusal

# As users think of them; how ranks are laid out is the mesh's matter.
_ORDER = ("dp", "tp", "pp")


def refusal(design: Design, job: Job, world_size: int) -> str | None:
    """Return a sentence where a job can never run so on so many ranks, or None."""
    if (why := design.mesh.misfit(world_size, _ORDER)) is not None:
        return why
    why = tensor_refusal(
        job,
        world_size,
        design.size("tp"),
        sequence_parallel=design.sequence_parallel,
        loss_parallel=design.loss_parallel,
    )
    if why is None and design.size("pp") > 1:
        why = design.cutting.refusal(job, design.size("pp"), design.size("dp"))
    if why is None and design.shard == "fsdp":
        why = _unshardable(design)
    return why


def _unshardable(design: Design) -> str | None:
    if design.size("dp") == 1:
        return (
            "shard=fsdp shares out what replicas hold, and dp=1 leaves a rank no replica to share with; "
            "give dp=2 or more, or leave shard out"
        )
    if design.size("pp") > 1 and design.cutting.halves(design.size("pp")):
        return (
            f"schedule={design.cutting.schedule.name} takes backward in halves, and shard=fsdp reduces gradients when "
            "a whole backward ends; use 1f1b, gpipe or interleaved, or leave shard out"
        )
    return None


def inability(design: Design, job: Job, ctx: RankContext) -> str | None:
    """Return a sentence where a rank cannot run a job that is not refused, or None; the same on every rank."""
    if design.size("pp") == 1:
        return None
    return _shared_within_rank(design, job, ctx) or indivisible(job, ctx, design.cutting, design.size("pp"))


def _shared_within_rank(design: Design, job: Job, ctx: RankContext) -> str | None:
    """Say so where two stages of a rank share a parameter, which would be sharded twice."""
    if design.shard == "none" or design.cutting.schedule.chunks == 1:
        return None
    for blocks in _together(design, job, ctx):
        seen = [id(p) for block in blocks for p in block.parameters()]
        if len(seen) > len(set(seen)):
            return (
                f"schedule={design.cutting.schedule.name} puts two stages that share a parameter on one rank, and "
                "shard=fsdp shards each stage by itself; use 1f1b or gpipe, or leave shard out"
            )
    return None


def _together(design: Design, job: Job, ctx: RankContext) -> list[list[nn.Module]]:
    """Return what lies on each rank of a pipeline; before blocks are timed, any of them may lie on any."""
    if design.cutting.split == "time":
        return [[job.model.get_submodule(name) for name in job.blocks]]
    given = boundaries(job, ctx)
    layout = design.layout(job, ctx, given)
    places = range(design.size("pp"))
    return [[stage.chain for stage in stages_of(job, layout, place, given).values()] for place in places]
