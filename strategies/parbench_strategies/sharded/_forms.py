"""Closed forms of fully sharded training: what a rank sends and holds, from the shapes of the parameters alone.

P parameters of the whole model, b bytes of one, n ranks; r copies, each sharded over s = n/r ranks; c bytes of a
parameter that is cast before it is gathered.
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
    all_reduce_bytes,
    all_reduced,
    bytes_of,
    data_parallel,
    optimizer_bytes,
    replicated_memory,
    shared_out,
    stepped,
    trained_bytes,
)
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options
from parbench_strategies.sharded._units import Units, chunk, owned, units_of

_REDUCED_BYTES = 4  # under mixed precision gradients are exchanged in fp32


def traffic(job: Job, ctx: RankContext, grid: Grid, options: Options) -> Mapping[str, Fraction]:
    """Gather every unit per micro-batch, and again for backward where it was freed; reduce gradients once.

    Of each chunk s ranks send s - 1, whichever way. What a reduce-scatter leaves is averaged with the other copies.
    """
    if grid.shards == 1:
        return _replicated(job, ctx)
    units = units_of(job, options.min_parameters)
    gathered = sum(_gathered(unit.parameters, ctx, grid, options) for unit in units.blocks)
    gathered = gathered * (2 if options.reshard_after_forward else 1) + _gathered(units.root, ctx, grid, options)
    reduced = _reduced(units, job, grid, options)
    averaged = all_reduced(reduced, grid.replicas)
    averaged += all_reduced(bytes_of(_trained(units.scalars, job)), ctx.world_size)
    sent = {
        "all_gather": Fraction((grid.shards - 1) * gathered * ctx.accumulate),
        "reduce_scatter": Fraction((grid.shards - 1) * reduced),
        "all_reduce": averaged,
    }
    return {op: size for op, size in sent.items() if size}


def textbook(job: Job, ctx: RankContext, grid: Grid, options: Options) -> Textbook:
    """Gathers and a reduce-scatter of (n-1)/n P b each; a copy's shards are then averaged like a small model."""
    if grid.shards == 1:
        return data_parallel(job, ctx)
    gathers = (2 if options.reshard_after_forward else 1) * ctx.accumulate
    whole = trained_bytes(job)
    part = "(n-1)/n" if grid.replicas == 1 else "(s-1)/s"
    if options.mixed_precision:
        cast = sum(p.numel() for p in job.model.parameters() if p.requires_grad) * ctx.dtype.itemsize
        formula = f"{gathers if gathers > 1 else ''}{part} P c + {part} P b"
    else:
        cast = whole
        formula = f"{gathers + 1}{part} P b"
    sent = shared_out(gathers * cast + whole, grid.shards)
    if grid.replicas > 1:
        formula += " + 2(r-1)/r P b/s"
        sent += all_reduced(Fraction(whole, grid.shards), grid.replicas)
    return Textbook(formula=formula, sent_bytes=sent)


def memory(job: Job, ctx: RankContext, grid: Grid, options: Options) -> Memory:
    """1/s of everything, each parameter's chunk padded; optimizer state is of what is really owned."""
    if grid.shards == 1:
        whole = replicated_memory(job)
        buckets = trained_bytes(job) if ctx.world_size > 1 else 0  # they hold the gradients a second time
        return replace(whole, gradients=whole.gradients + buckets)
    units = units_of(job, options.min_parameters)
    shard = ctx.rank % grid.shards
    sizes = (owned(p, grid.shards, shard) if p.dim() else 1 for p in stepped(job))
    return Memory(
        parameters=_chunk_bytes(units.cut, grid.shards) + bytes_of(units.scalars),
        gradients=_chunk_bytes(_trained(units.cut, job), grid.shards) + bytes_of(_trained(units.scalars, job)),
        optimizer=optimizer_bytes(job, sizes),
        buffers=bytes_of(job.model.buffers()),
    )


def _replicated(job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
    """Return what DistributedDataParallel sends: every gradient once, and the buffers from rank 0."""
    if ctx.world_size == 1:
        return {}
    buffers = bytes_of(job.model.buffers()) if ctx.rank == 0 else 0
    return {"all_reduce": all_reduce_bytes(job, ctx)} | ({"broadcast": Fraction(buffers)} if buffers else {})


def _gathered(parameters: Iterable[nn.Parameter], ctx: RankContext, grid: Grid, options: Options) -> int:
    """Return the bytes of a rank's chunks as they are gathered."""
    return sum(
        chunk(p, grid.shards)
        * (ctx.dtype.itemsize if options.mixed_precision and p.is_floating_point() else p.element_size())
        for p in parameters
    )


def _reduced(units: Units, job: Job, grid: Grid, options: Options) -> int:
    """Return the bytes of a rank's chunks of the gradients as they are exchanged."""
    return sum(
        chunk(p, grid.shards) * (_REDUCED_BYTES if options.mixed_precision else p.element_size())
        for p in _trained(units.cut, job)
    )


def _chunk_bytes(parameters: Iterable[nn.Parameter], shards: int) -> int:
    return sum(chunk(p, shards) * p.element_size() for p in parameters)


def _trained(parameters: Iterable[nn.Parameter], job: Job) -> list[nn.Parameter]:
    """Return those that every step gives a gradient."""
    trained = {id(p) for p in stepped(job)}
    return [p for p in parameters if id(p) in trained]
