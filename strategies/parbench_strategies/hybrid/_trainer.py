"""A HybridTrainer is the trainer of the families that take part, and says where in the mesh its rank stands."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import final

from torch import Tensor

from parbench.api import Batch, Holding, Job, RankContext, Trainer
from parbench_strategies.hybrid._design import Design
from parbench_strategies.hybrid._layers import TensorLayers
from parbench_strategies.hybrid._shards import Shards
from parbench_strategies.pipelined import PipelineTrainer, Replicas, boundaries
from parbench_strategies.sharded import ShardedTrainer
from parbench_strategies.tensor import TensorsTrainer, own_name


def trainer_of(design: Design, job: Job, ctx: RankContext) -> Trainer:
    """Return the trainer of a job that a design does not refuse; the job's model is changed for good."""
    grid, plan = design.tensor_grid(ctx), design.plan(job)
    stages = str(len(job.blocks))
    if design.size("pp") == 1 and design.shard == "none":
        return HybridTrainer(TensorsTrainer(job, ctx, grid, plan), design, ctx, stages)
    layers = TensorLayers(plan, grid, design.ranks_along(ctx, "tp"))
    if design.size("pp") == 1:
        return HybridTrainer(_sharded(design, job, ctx, layers), design, ctx, stages, layers)
    given = boundaries(job, ctx)
    layout = design.layout(job, ctx, given)
    inner = PipelineTrainer(
        job,
        ctx,
        design.pipeline_grid(ctx),
        layout,
        design.passed_on(job, given),
        design.cutting.microbatches,
        functools.partial(Shards, ctx, design.shard_grid, design.options) if design.shard == "fsdp" else Replicas,
        layers,
    )
    return HybridTrainer(inner, design, ctx, "+".join(map(str, layout.sizes)))


def _sharded(design: Design, job: Job, ctx: RankContext, layers: TensorLayers) -> Trainer:
    """Cut layers first, then shard what a rank has of them over the ranks along dp."""
    layers.cut(job.model)
    beside = replace(design.beside(ctx), comm=design.ranks_along(ctx, "dp"))
    return ShardedTrainer(job, beside, design.shard_grid, design.options, lambda: layers.complete(dict(layers.named())))


@final
class HybridTrainer(Trainer):
    """One rank of a mesh.

    Args:
        inner: what trains.
        design: what was told.
        ctx: this rank.
        stages: blocks of each.
        layers: cut layers that `inner` does not know of.
    """

    def __init__(
        self, inner: Trainer, design: Design, ctx: RankContext, stages: str, layers: TensorLayers | None = None
    ) -> None:
        self._inner = inner
        self._layers = layers
        here = design.mesh.coordinates(ctx.rank)
        self._where = {
            "coordinates": ", ".join(f"{axis} {place}" for axis, place in here.items()),
            "mesh": str(design.mesh),
            "stages": stages,
        }

    def step(self, batch: Batch) -> Tensor | None:
        return self._inner.step(batch)

    def drain(self) -> None:
        self._inner.drain()

    def full_parameters(self) -> Mapping[str, Tensor]:
        found = self._inner.full_parameters()
        if self._layers is None:
            return found
        return {own_name(name): self._layers.whole(own_name(name), part) for name, part in found.items()}

    def full_buffers(self) -> Mapping[str, Tensor]:
        return self._inner.full_buffers()

    def notes(self) -> Mapping[str, str | int | float]:
        return {**self._where, **self._inner.notes()}

    def holding(self) -> Holding | None:
        return self._inner.holding()

    def close(self) -> None:
        self._inner.close()
        if self._layers is not None:
            self._layers.close()
