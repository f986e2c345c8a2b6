"""A Design is what a hybrid is told, and where each family finds a rank: its grid, its plan, its ranks.

pp x dp x tp      tensor group: along tp      replicas or shards: along dp      pipeline: along pp
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

from parbench.api import Comm, Job, RankContext
from parbench_strategies.hybrid._mesh import Mesh
from parbench_strategies.pipelined import Boundary, Cutting, Layout
from parbench_strategies.pipelined import Grid as PipelineGrid
from parbench_strategies.sharded import Grid as ShardGrid
from parbench_strategies.sharded import Options
from parbench_strategies.tensor import Grid as TensorGrid
from parbench_strategies.tensor import Plan, plan_of, region

Shard = Literal["none", "fsdp"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What a hybrid is told.

    Attributes:
        mesh: axes pp, dp and tp.
        shard: whether replicas share out what they hold.
        cutting: how the pipeline cuts the model and its batches.
        sequence_parallel: whether tensor groups share out positions.
        loss_parallel: whether they cut the vocabulary.
    """

    mesh: Mesh
    shard: Shard
    cutting: Cutting
    sequence_parallel: bool
    loss_parallel: bool

    def size(self, axis: str) -> int:
        """Return the ranks along an axis."""
        return self.mesh.sizes[axis]

    def plan(self, job: Job) -> Plan:
        """Return what becomes of each layer."""
        return plan_of(job, self.size("tp"), sequence_parallel=self.sequence_parallel, loss_parallel=self.loss_parallel)

    def tensor_grid(self, ctx: RankContext) -> TensorGrid:
        """Return where a rank is among those that share out layers."""
        here = self.mesh.coordinates(ctx.rank)
        return TensorGrid(degree=self.size("tp"), replicas=self.size("dp"), place=here["tp"], replica=here["dp"])

    def pipeline_grid(self, ctx: RankContext) -> PipelineGrid:
        """Return where a rank is among those that pass micro-batches on."""
        here = self.mesh.coordinates(ctx.rank)
        return PipelineGrid(
            replicas=self.size("dp"),
            ranks=self.size("pp"),
            replica=here["dp"],
            place=here["pp"],
            pipeline=self.mesh.along(ctx.rank, "pp"),
            peers=self.mesh.along(ctx.rank, "dp"),
        )

    @property
    def shard_grid(self) -> ShardGrid:
        """How those that share out a stage are laid out."""
        return ShardGrid(replicas=1, shards=self.size("dp"))

    @property
    def options(self) -> Options:
        """How they do it.

        A pipeline keeps the parameters of a stage from the first micro-batch to the last, as torchtitan does by
        default: gathering them for each anew would cost as many times the bytes.
        """
        return Options(
            reshard_after_forward=self.size("pp") == 1,
            min_parameters=0,
            prefetch=0,
            mixed_precision=False,
            offload=False,
        )

    def beside(self, ctx: RankContext) -> RankContext:
        """Return a rank as one of those along dp, without their collectives."""
        return replace(ctx, rank=self.mesh.coordinates(ctx.rank)["dp"], world_size=self.size("dp"))

    def ranks_along(self, ctx: RankContext, axis: str) -> Comm:
        """Return the collectives along an axis; every rank of `ctx` calls this, for its axes in one order."""
        return ctx.comm.subset(self.mesh.along(ctx.rank, axis))

    def layout(self, job: Job, ctx: RankContext, given: Sequence[Boundary]) -> Layout:
        """Return which rank of a pipeline holds which blocks."""
        return self.cutting.layout(job, ctx, given, self.size("pp"), self.size("dp"))

    def passed_on(self, job: Job, given: Sequence[Boundary]) -> list[Boundary]:
        """Return what a rank has of what each block gives: a part of the positions between blocks that share them."""
        n = self.size("tp")
        shared = set(region(job)[:-1]) if self.sequence_parallel and n > 1 else set()
        return [
            replace(one, shape=(one.shape[0] // n, *one.shape[1:])) if name in shared else one
            for name, one in zip(job.blocks, given, strict=True)
        ]
