"""A Stage is consecutive blocks of the model on one rank; a Layout says which rank holds which blocks.

P ranks of a pipeline, v chunks per rank, S = P v stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from parbench.api import Job
from parbench.schedule import Schedule


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

    Attributes:
        number: 0 to S - 1.
        parameters: the trainable ones, once each.
    """

    def __init__(self, number: int, blocks: Sequence[nn.Module]) -> None:
        self.number = number
        self._blocks = blocks
        unique = {id(p): p for block in blocks for p in block.parameters() if p.requires_grad}
        self.parameters: list[nn.Parameter] = list(unique.values())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the blocks."""
        for block in self._blocks:
            x = block(x)
        return x


def kept(job: Job, layout: Layout, rank: int) -> Mapping[int, Stage]:
    """Return the stages of a rank by chunk, and drop the values of every block that it does not hold."""
    names = {stage: layout.blocks_of(job, stage) for stage in layout.stages_of(rank)}
    own = {name for blocks in names.values() for name in blocks}
    for name in job.blocks:
        if name not in own:
            job.model.get_submodule(name).to("meta")
    return {
        chunk: Stage(stage, [job.model.get_submodule(name) for name in names[stage]])
        for chunk, stage in enumerate(layout.stages_of(rank))
    }
