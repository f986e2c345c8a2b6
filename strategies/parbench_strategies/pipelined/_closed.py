"""Closed forms of a pipeline: what a rank sends and holds, from shapes and the layout alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from torch import nn

from parbench.api import Job, Memory, all_reduced, bytes_of, optimizer_bytes
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._grid import Grid
from parbench_strategies.pipelined._stages import Layout


def held(job: Job, layout: Layout, grid: Grid) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of this rank's stages."""
    holders = layout.holders(job)
    return [(name, p) for name, p in job.model.named_parameters() if grid.place in holders[name]]


def sent(job: Job, layout: Layout, grid: Grid, given: Sequence[Boundary]) -> dict[str, Fraction]:
    """Return what this rank sends in a step, by collective.

    Activations to the next stage and gradients to the one before, where another rank holds it; gradients of weights
    averaged over replicas, and those of shared weights added over the ranks that share them.
    """
    reduced = averaged(job, layout, grid) + added(job, layout, grid, lambda p: bytes_of([p]))
    return {"send": passed(job, layout, grid, given), "all_reduce": reduced}


def passed(job: Job, layout: Layout, grid: Grid, given: Sequence[Boundary]) -> Fraction:
    """Return the bytes of activations and gradients that this rank sends to stages of other ranks."""
    samples = grid.share(job.batch(0)).samples
    messages = 0
    for stage in layout.stages_of(grid.place):
        if stage + 1 < len(layout.sizes) and layout.rank_of(stage + 1) != grid.place:
            messages += given[layout.last_block(stage)].bytes_per_sample * samples
        if stage > 0 and layout.rank_of(stage - 1) != grid.place:
            messages += given[layout.last_block(stage - 1)].bytes_per_sample * samples
    return Fraction(messages)


def averaged(job: Job, layout: Layout, grid: Grid) -> Fraction:
    """Return what this rank sends to average gradients over replicas."""
    return all_reduced(sum(bytes_of([p]) for _, p in _stepped(job, layout, grid)), grid.replicas)


def added(job: Job, layout: Layout, grid: Grid, size_of: Callable[[nn.Parameter], int]) -> Fraction:
    """Return what this rank sends to add up gradients of weights that several stages share.

    Args:
        job: whose model it is.
        layout: who holds what.
        grid: where this rank stands.
        size_of: bytes of the gradient that a rank has of a weight.
    """
    holders = layout.holders(job)
    terms = (all_reduced(size_of(p), len(holders[name])) for name, p in _stepped(job, layout, grid))
    return sum(terms, Fraction(0))


def _stepped(job: Job, layout: Layout, grid: Grid) -> Iterator[tuple[str, nn.Parameter]]:
    skipped = set(job.unused)
    return ((name, p) for name, p in held(job, layout, grid) if p.requires_grad and name not in skipped)


def memory(job: Job, layout: Layout, grid: Grid) -> Memory:
    """Return what this rank holds: weights, gradients and optimizer state of its stages."""
    mine = held(job, layout, grid)
    stepped = [p for _, p in _stepped(job, layout, grid)]
    blocks = [block for stage in layout.stages_of(grid.place) for block in layout.blocks_of(job, stage)]
    buffers = {id(b): b for name in blocks for b in job.model.get_submodule(name).buffers()}
    return Memory(
        parameters=bytes_of(p for _, p in mine),
        gradients=bytes_of(stepped),
        optimizer=optimizer_bytes(job, (p.numel() for p in stepped)),
        buffers=bytes_of(buffers.values()),
    )
