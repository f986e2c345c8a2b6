"""Closed forms of hybrids: those of the families that take part, each applied to what the others leave of the job.

Tensor parallelism comes first: what is left is a job with smaller parameters. A pipeline leaves this rank's stages of
it, and sharding works on each of them, or on the whole, as on a job of its own.

d replicas, n ranks of a tensor group, p ranks of a pipeline, v chunks per rank; B samples, a bytes of activations that
one of them passes on, P parameters, b bytes of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from torch import nn

from parbench.api import (
    Job,
    Memory,
    RankContext,
    Textbook,
    all_reduced,
    bytes_of,
    replicated_memory,
    shared_out,
    trained_bytes,
)
from parbench_strategies.hybrid._design import Design
from parbench_strategies.pipelined import added, averaged, boundaries, passed, rehearse, stages_of
from parbench_strategies.pipelined import memory as stages_memory
from parbench_strategies.sharded import memory as shards_memory
from parbench_strategies.sharded import owned
from parbench_strategies.sharded import traffic as shards_traffic
from parbench_strategies.tensor import crossed, cut_shapes, dry_step, megatron
from parbench_strategies.tensor import traffic as layers_traffic


def traffic(design: Design, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
    """Return operation -> bytes that this rank sends in a step."""
    grid, plan = design.tensor_grid(ctx), design.plan(job)
    if design.size("pp") == 1 and design.shard == "none":
        return layers_traffic(job, ctx, grid, plan)
    if design.size("pp") > 1:
        return _piped(design, job, ctx)
    cut, beside = cut_shapes(job, plan, grid), design.beside(ctx)
    partial = [p for name, p in cut.model.named_parameters() if name in plan.summed]
    return _total(
        crossed(job, ctx, plan, grid.degree, lambda: dry_step(job, ctx, grid)),
        shards_traffic(cut, beside, design.shard_grid, design.options),
        {"all_reduce": all_reduced(sum(_gradient(design, ctx, p) for p in partial), grid.degree)},
    )


def _piped(design: Design, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
    plan, grid, parts = design.plan(job), design.pipeline_grid(ctx), design.cutting.microbatches
    given = boundaries(job, ctx)
    layout = design.layout(job, ctx, given)
    cut = cut_shapes(job, plan, design.tensor_grid(ctx))
    holders = layout.holders(job)
    mine = [p for name, p in cut.model.named_parameters() if name in plan.summed and grid.place in holders[name]]
    tied = added(cut, layout, grid, lambda p: _gradient(design, ctx, p))
    partial = all_reduced(sum(_gradient(design, ctx, p) for p in mine), design.size("tp"))
    sent = _total(
        crossed(job, ctx, plan, design.size("tp"), lambda: rehearse(job, ctx, grid, layout, given, parts)),
        {"send": passed(job, layout, grid, design.passed_on(job, given)), "all_reduce": tied + partial},
    )
    if design.shard == "none":
        return _total(sent, {"all_reduce": averaged(cut, layout, grid)})
    # Gathered once per step, however many micro-batches there are.
    once = replace(design.beside(ctx), accumulate=1)
    stages = (stage.alone(cut) for stage in stages_of(cut, layout, grid.place, given).values())
    return _total(sent, *(shards_traffic(stage, once, design.shard_grid, design.options) for stage in stages))


def memory(design: Design, job: Job, ctx: RankContext) -> Memory:
    """Return what this rank holds."""
    cut, beside = cut_shapes(job, design.plan(job), design.tensor_grid(ctx)), design.beside(ctx)
    if design.size("pp") == 1:
        if design.shard == "none":
            return replicated_memory(cut)
        return shards_memory(cut, beside, design.shard_grid, design.options)
    given = boundaries(job, ctx)
    layout, grid = design.layout(job, ctx, given), design.pipeline_grid(ctx)
    if design.shard == "none":
        return stages_memory(cut, layout, grid)
    stages = (stage.alone(cut) for stage in stages_of(cut, layout, grid.place, given).values())
    return _sum(shards_memory(stage, beside, design.shard_grid, design.options) for stage in stages)


def textbook(design: Design, job: Job, ctx: RankContext) -> Textbook:
    """Return Megatron-LM's count per layer, what a middle rank passes on, and gradients of P/(n p) parameters."""
    d, n, p = (design.size(axis) for axis in ("dp", "tp", "pp"))
    samples = design.pipeline_grid(ctx).share(job.batch(0)).samples
    forms, sent = [], Fraction(0)
    if n > 1:
        layers = megatron(job, ctx, samples, n, sequence_parallel=design.sequence_parallel)
        forms.append(layers.formula if p == 1 else f"1/p of {layers.formula}")
        sent += layers.sent_bytes / p
    if p > 1:
        widest = max(one.bytes_per_sample for one in design.passed_on(job, boundaries(job, ctx))[:-1])
        forms.append("2 v B/d a")
        sent += 2 * design.cutting.schedule.chunks * samples * widest
    part = Fraction(trained_bytes(job), n * p)
    if d > 1 and design.shard == "none":
        forms.append("2(d-1)/d P b/(n p)")
        sent += all_reduced(part, d)
    elif d > 1:
        moves = 1 + (2 * ctx.accumulate if p == 1 else 1)
        forms.append(f"{moves}(d-1)/d P b/(n p)")
        sent += moves * shared_out(part, d)
    return Textbook(formula=" + ".join(forms) or "0", sent_bytes=sent)


def _gradient(design: Design, ctx: RankContext, parameter: nn.Parameter) -> int:
    """Return the bytes that a rank has of a parameter's gradient when it is averaged."""
    if design.shard == "none" or not parameter.dim():
        return bytes_of([parameter])
    beside = design.beside(ctx)
    return owned(parameter, beside.world_size, beside.rank) * parameter.element_size()


def _total(*parts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for part in parts:
        for op, size in part.items():
            found[op] = found.get(op, Fraction(0)) + size
    return {op: size for op, size in found.items() if size}


def _sum(parts: Iterable[Memory]) -> Memory:
    every = list(parts)
    return Memory(
        parameters=sum(one.parameters for one in every),
        gradients=sum(one.gradients for one in every),
        optimizer=sum(one.optimizer for one in every),
        buffers=sum(one.buffers for one in every),
    )
