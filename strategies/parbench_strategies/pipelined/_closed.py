"""Closed forms of a pipeline: what a rank sends and holds, from shapes and the layout alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from torch import nn

from parbench.api import Batch, Job, Memory, RankContext, all_reduced, bytes_of, optimizer_bytes
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._stages import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where a rank stands: rank = replica x pipeline ranks + place.

    Attributes:
        replicas: pipelines side by side.
        ranks: of each pipeline.
        replica: which pipeline this rank is in.
        place: which rank of it.
    """

    replicas: int
    ranks: int
    replica: int
    place: int

    @staticmethod
    def of(ctx: RankContext, replicas: int) -> Grid:
        """Return where the rank of `ctx` stands."""
        ranks = ctx.world_size // replicas
        return Grid(replicas=replicas, ranks=ranks, replica=ctx.rank // ranks, place=ctx.rank % ranks)

    def share(self, batch: Batch) -> Batch:
        """Return the part of a global batch that this rank's pipeline works on."""
        return batch.share(self.replica, self.replicas)


def held(job: Job, layout: Layout, grid: Grid) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of this rank's stages."""
    holders = layout.holders(job)
    return [(name, p) for name, p in job.model.named_parameters() if grid.place in holders[name]]


def sent(job: Job, layout: Layout, grid: Grid, given: Sequence[Boundary]) -> dict[str, Fraction]:
    """Return what this rank sends in a step, by collective.

    Activations to the next stage and gradients to the one before, where another rank holds it; gradients of weights
    averaged over replicas, and those of shared weights added over the ranks that share them.
    """
    samples = grid.share(job.batch(0)).samples
    messages = 0
    for stage in layout.stages_of(grid.place):
        if stage + 1 < len(layout.sizes) and layout.rank_of(stage + 1) != grid.place:
            messages += given[layout.last_block(stage)].bytes_per_sample * samples
        if stage > 0 and layout.rank_of(stage - 1) != grid.place:
            messages += given[layout.last_block(stage - 1)].bytes_per_sample * samples
    return {"send": Fraction(messages), "all_reduce": _reduced(job, layout, grid)}


def _reduced(job: Job, layout: Layout, grid: Grid) -> Fraction:
    skipped, holders = set(job.unused), layout.holders(job)
    total = Fraction(0)
    for name, parameter in held(job, layout, grid):
        if parameter.requires_grad and name not in skipped:
            size = bytes_of([parameter])
            total += all_reduced(size, grid.replicas) + all_reduced(size, len(holders[name]))
    return total


def memory(job: Job, layout: Layout, grid: Grid) -> Memory:
    """Return what this rank holds: weights, gradients and optimizer state of its stages."""
    mine = held(job, layout, grid)
    stepped = [p for name, p in mine if p.requires_grad and name not in job.unused]
    blocks = [block for stage in layout.stages_of(grid.place) for block in layout.blocks_of(job, stage)]
    buffers = {id(b): b for name in blocks for b in job.model.get_submodule(name).buffers()}
    return Memory(
        parameters=bytes_of(p for _, p in mine),
        gradients=bytes_of(stepped),
        optimizer=optimizer_bytes(job, (p.numel() for p in stepped)),
        buffers=bytes_of(buffers.values()),
    )
