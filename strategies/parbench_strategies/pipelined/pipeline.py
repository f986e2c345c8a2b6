"""Pipeline parallelism: ranks hold consecutive layers, and micro-batches pass from rank to rank, as a schedule says.

rank 0   blocks 0 1   ──activations──>   rank 1   blocks 2 3   ──>   rank 2   blocks 4 5, loss
                      <──gradients────                         <──
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import final

from parbench.api import Job, Memory, Paper, RankContext, Strategy, Textbook, Trainer, all_reduced, trained_bytes
from parbench.schedule import Schedule
from parbench_strategies.pipelined import _closed
from parbench_strategies.pipelined._boundaries import Boundary, boundaries
from parbench_strategies.pipelined._cutting import Cutting
from parbench_strategies.pipelined._grid import Grid
from parbench_strategies.pipelined._rehearsal import indivisible
from parbench_strategies.pipelined._stages import Layout
from parbench_strategies.pipelined._trainer import PipelineTrainer
from parbench_strategies.pipelined._weights import Split
from parbench_strategies.pipelined.schedules.one_f_one_b import OneForwardOneBackward


@final
class Pipeline(Strategy):
    """Spreads layers over ranks and passes micro-batches through them in the order of a schedule.

    Args:
        schedule: such as `gpipe`, `1f1b`, `interleaved(v=2)` or `zbv` (`parbench list schedules`).
        microbatches: into which a replica's share of the batch is cut.
        split: what stages balance: "count" of blocks, "memory", or measured "time".
        cuts: numbers of the blocks that begin the second and later stages, instead of a split.
        replicate: pipelines side by side, which share the batch and average their gradients.
    """

    paper = Paper(
        "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism (Huang et al., 2019)",
        "https://arxiv.org/abs/1811.06965",
    )
    agrees = "closely"
    consumes_model = True
    shards = ("layers",)

    def __init__(
        self,
        schedule: Schedule = OneForwardOneBackward(),  # noqa: B008 - it has no state
        microbatches: int = 4,
        split: Split = "count",
        cuts: Sequence[int] = (),
        replicate: int = 1,
    ) -> None:
        if replicate < 1:
            raise ValueError(f"replicate must be at least 1, got {replicate}")
        self.cutting = Cutting(schedule=schedule, microbatches=microbatches, split=split, cuts=tuple(cuts))
        self.replicate = replicate

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Refuse numbers that do not fit: ranks, blocks, micro-batches, samples."""
        if world_size % self.replicate:
            fitting = ", ".join(str(d) for d in range(1, world_size + 1) if world_size % d == 0)
            return (
                f"replicate x ranks of a pipeline = world size has no solution for {self.replicate} x ? = "
                f"{world_size}; replicate can be {fitting}"
            )
        return self.cutting.refusal(job, world_size // self.replicate, self.replicate)

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """Replicas, and the ranks of each pipeline."""
        return {"dp": self.replicate, "pp": world_size // self.replicate}

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where backward cannot be taken in halves, as the schedule wants it."""
        return indivisible(job, ctx, self.cutting, ctx.world_size // self.replicate)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """Activations forward and gradients back over every cut, and what replicas and shared weights add up.

        None where stages are cut by measured time.
        """
        if self.cutting.split == "time":
            return None
        given = boundaries(job, ctx)
        return _closed.sent(job, self._layout(job, ctx, given), Grid.of(ctx, self.replicate), given)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A rank in the middle passes B/d activations of a bytes on and as many gradients back, for each chunk."""
        grid, given = Grid.of(ctx, self.replicate), boundaries(job, ctx)
        size = max(one.bytes_per_sample for one in given[:-1]) if len(given) > 1 else 0
        passed = 2 * self.cutting.schedule.chunks * grid.share(job.batch(0)).samples * size if grid.ranks > 1 else 0
        averaged = all_reduced(Fraction(trained_bytes(job), grid.ranks), grid.replicas)
        return Textbook(formula="2 v B/d a + 2(d-1)/d P b/p", sent_bytes=passed + averaged)

    def memory(self, job: Job, ctx: RankContext) -> Memory | None:
        """The stages of this rank; None where they are cut by measured time."""
        if self.cutting.split == "time":
            return None
        layout = self._layout(job, ctx, boundaries(job, ctx))
        return _closed.memory(job, layout, Grid.of(ctx, self.replicate))

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut the model and keep this rank's stages."""
        given = boundaries(job, ctx)
        layout = self._layout(job, ctx, given)
        return PipelineTrainer(job, ctx, Grid.of(ctx, self.replicate), layout, given, self.cutting.microbatches)

    def _layout(self, job: Job, ctx: RankContext, given: Sequence[Boundary]) -> Layout:
        return self.cutting.layout(job, ctx, given, ctx.world_size // self.replicate, self.replicate)
