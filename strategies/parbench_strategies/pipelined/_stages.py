"""A Stage is consecutive blocks of the model on one rank; a Layout says which rank holds which blocks.

P ranks of a pipeline, v chunks per rank, S = P v stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from torch import Tensor, nn

from parbench.api import Job
from parbench.schedule import Schedule
from parbench_strategies.pipelined._boundaries import Boundary, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which rank of a pipeline holds which blocks.

    Attributes:
        ranks: P.
        schedule: says which stage is on which rank.
        sizes: blocks of each stage.
    """

    ranks: int
    schedule: Schedule
    sizes: Sequence[int]

    def blocks_of(self, job: Job, stage: int) -> list[str]:
        """Return the names of a stage's blocks."""
        start = sum(self.sizes[:stage])
        return list(job.blocks[start : start + self.sizes[stage]])

    def rank_of(self, stage: int) -> int:
        """Return the rank that holds a stage."""
        return self.schedule.place_of(stage, self.ranks)[0]

    def last_block(self, stage: int) -> int:
        """Return the number of a stage's last block, whose result it gives on."""
        return sum(self.sizes[: stage + 1]) - 1

    def stages_of(self, rank: int) -> list[int]:
        """Return the stages of a rank, by chunk."""
        return [self.schedule.stage_of(rank, chunk, self.ranks) for chunk in range(self.schedule.chunks)]

    def holders(self, job: Job) -> dict[str, list[int]]:
        """Return parameter name -> the ranks that hold it; several where stages share it (tied embeddings)."""
        names = {id(p): name for name, p in job.model.named_parameters()}
        found: dict[str, set[int]] = {name: set() for name in names.values()}
        for stage in range(len(self.sizes)):
            for block in self.blocks_of(job, stage):
                for parameter in job.model.get_submodule(block).parameters():
                    found[names[id(parameter)]].add(self.rank_of(stage))
        return {name: sorted(ranks) for name, ranks in found.items()}


@final
class Stage:
    """Blocks that are applied one after the other.

    Args:
        number: 0 to S - 1.
        chain: the blocks.
        entering: what the stage before gives; None for the first.
        leaving: what this one gives.

    Attributes:
        number: 0 to S - 1.
        chain: the blocks.
        parameters: the trainable ones, once each.
    """

    def __init__(self, number: int, chain: nn.Sequential, entering: Boundary | None, leaving: Boundary) -> None:
        self.number = number
        self.chain = chain
        self._entering, self._leaving = entering, leaving
        self.parameters: list[nn.Parameter] = [p for p in chain.parameters() if p.requires_grad]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the blocks to a message and return the message for the next stage."""
        result: Value = self.chain(x if self._entering is None else self._entering.unpack(x))
        return self._leaving.pack(result)

    def alone(self, job: Job) -> Job:
        """Return a job whose model is this stage; its loss and its batches are still the whole model's."""
        unused = {id(p) for name, p in job.model.named_parameters() if name in job.unused}
        return replace(
            job,
            model=self.chain,
            blocks=tuple(name for name, _ in self.chain.named_children()),
            unused=tuple(name for name, p in self.chain.named_parameters() if id(p) in unused),
        )


def stages_of(job: Job, layout: Layout, rank: int, given: Sequence[Boundary]) -> Mapping[int, Stage]:
    """Return the stages of a rank by chunk, for what each block gives."""

    def made(stage: int) -> Stage:
        chain = nn.Sequential(*(job.model.get_submodule(name) for name in layout.blocks_of(job, stage)))
        entering = given[layout.last_block(stage - 1)] if stage else None
        return Stage(stage, chain, entering, given[layout.last_block(stage)])

    return {chunk: made(stage) for chunk, stage in enumerate(layout.stages_of(rank))}


def kept(job: Job, layout: Layout, rank: int, given: Sequence[Boundary]) -> Mapping[int, Stage]:
    """Return the stages of a rank by chunk, and drop the values of every block that it does not hold."""
    own = {name for stage in layout.stages_of(rank) for name in layout.blocks_of(job, stage)}
    for name in job.blocks:
        if name not in own:
            job.model.get_submodule(name).to("meta")
    return stages_of(job, layout, rank, given)
