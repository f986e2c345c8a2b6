"""A Cutting is how a pipeline is told to cut a model into stages and a batch into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parbench.api import Job, RankContext, checked_order
from parbench.errors import UsageError
from parbench.schedule import Schedule
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._split import balanced, from_cuts
from parbench_strategies.pipelined._stages import Layout
from parbench_strategies.pipelined._weights import Split, weights

_MOST_MICROBATCHES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a pipeline is told.

    Attributes:
        schedule: the order of work.
        microbatches: into which a replica's share of the batch is cut.
        split: what stages balance: "count" of blocks, "memory", or measured "time".
        cuts: numbers of the blocks that begin the second and later stages, instead of a split.
    """

    schedule: Schedule
    microbatches: int
    split: Split
    cuts: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ValueError: the number of micro-batches is out of range, or cuts are given beside a split.
        """
        if not 1 <= self.microbatches <= _MOST_MICROBATCHES:
            raise ValueError(f"microbatches must be 1 to {_MOST_MICROBATCHES}, got {self.microbatches}")
        if self.cuts and self.split != "count":
            raise ValueError(f"cuts already say where stages begin; leave out split={self.split}")

    def refusal(self, job: Job, ranks: int, replicas: int) -> str | None:
        """Return a sentence where a job cannot be cut for so many ranks per pipeline and pipelines, or None."""
        stages, blocks = ranks * self.schedule.chunks, len(job.blocks)
        if stages > blocks:
            return (
                f"{ranks} ranks x {self.schedule.chunks} chunks = {stages} stages, the model has {blocks} blocks for "
                f"them; at most {blocks // self.schedule.chunks} ranks can take part in a pipeline"
            )
        try:
            checked_order(self.schedule, ranks, self.microbatches)
        except UsageError as error:  # what it refuses, and what would keep ranks waiting for each other for ever
            return str(error)
        samples = job.batch(0).samples // replicas
        if samples < self.microbatches:
            return (
                f"a pipeline has {samples} samples of a batch and cannot cut them into {self.microbatches} "
                f"micro-batches; give microbatches={max(1, samples)} or fewer, or a larger --global-batch-size"
            )
        return self._cuts_problem(blocks, stages)

    def halves(self, ranks: int) -> bool:
        """Whether the schedule takes some backward in halves."""
        every = (one for rank in range(ranks) for one in self.schedule.actions(rank, ranks, self.microbatches))
        return any(one.kind in "IW" for one in every)

    def _cuts_problem(self, blocks: int, stages: int) -> str | None:
        try:
            if self.cuts:
                from_cuts(self.cuts, blocks, stages)
        except ValueError as error:
            return str(error)
        return None

    def layout(self, job: Job, ctx: RankContext, given: Sequence[Boundary], ranks: int, replicas: int) -> Layout:
        """Return which rank of a pipeline holds which blocks; every rank of `ctx` calls this.

        Args:
            job: whole, not refused.
            ctx: this rank, in the group of all ranks.
            given: what each block gives.
            ranks: of a pipeline.
            replicas: pipelines side by side.
        """
        stages = ranks * self.schedule.chunks
        if self.cuts:
            sizes = from_cuts(self.cuts, len(job.blocks), stages)
        else:
            per_pass = -(-job.batch(0).samples // (replicas * self.microbatches))
            live = per_pass * max(self.schedule.peak_live(rank, ranks, self.microbatches) for rank in range(ranks))
            sizes = balanced(weights(self.split, job, ctx, given, live), stages)
        if sum(sizes) != len(job.blocks):
            raise ValueError(f"stages of {sizes} blocks are not the model's {len(job.blocks)}")
        return Layout(ranks=ranks, schedule=self.schedule, sizes=sizes)
