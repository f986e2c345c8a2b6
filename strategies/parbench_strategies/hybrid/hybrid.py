"""Hybrids compose data, tensor and pipeline parallelism on one mesh of ranks, as Megatron-LM does, and FSDP with them.

dp=2, tp=2, pp=2       dp 0            dp 1
                    tp 0  tp 1      tp 0  tp 1       tensor groups are neighbours: they exchange most
stage 0               0 == 1          2 == 3
                      |    |          |    |         micro-batches pass down and up
stage 1               4 == 5          6 == 7
                      4 ~~~~~~~~~~~~~ 6              replicas average gradients, or share out what they hold
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from parbench.api import Job, Memory, Paper, RankContext, Strategy, Textbook, Trainer
from parbench.schedule import Schedule
from parbench_strategies.hybrid import _closed
from parbench_strategies.hybrid._design import Design, Shard
from parbench_strategies.hybrid._mesh import Mesh
from parbench_strategies.hybrid._refusals import inability, refusal
from parbench_strategies.hybrid._trainer import trainer_of
from parbench_strategies.pipelined import Cutting, OneForwardOneBackward, Split


@final
class Hybrid(Strategy):
    """Cuts layers over tensor groups, the chain of layers over a pipeline, and the batch over replicas of both.

    Args:
        dp: replicas, which share out the batch.
        tp: ranks that share out each layer.
        pp: ranks of a pipeline; 1 passes nothing on, and leaves schedule, microbatches and split without meaning.
        shard: "fsdp" lets replicas share out the parameters, gradients and optimizer state that they would repeat.
        schedule: such as `gpipe`, `1f1b` or `interleaved(v=2)` (`parbench list schedules`).
        microbatches: into which a replica's share of the batch is cut.
        split: what stages balance: "count" of blocks, "memory", or measured "time".
        sequence_parallel: share out positions between cut layers, instead of repeating norms and residuals.
        loss_parallel: cut the layer that gives logits along the vocabulary, and compute the loss on the parts.
    """

    paper = Paper(
        "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (Narayanan et al., 2021)",
        "https://arxiv.org/abs/2104.04473",
    )
    agrees = "closely"
    consumes_model = True

    def __init__(
        self,
        dp: int = 1,
        tp: int = 1,
        pp: int = 1,
        shard: Shard = "none",
        schedule: Schedule = OneForwardOneBackward(),  # noqa: B008 - it has no state
        microbatches: int = 4,
        split: Split = "count",
        sequence_parallel: bool = False,
        loss_parallel: bool = False,
    ) -> None:
        for name, size in (("dp", dp), ("tp", tp), ("pp", pp)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.design = Design(
            mesh=Mesh(sizes={"pp": pp, "dp": dp, "tp": tp}),
            shard=shard,
            cutting=Cutting(schedule=schedule, microbatches=microbatches, split=split),
            sequence_parallel=sequence_parallel,
            loss_parallel=loss_parallel,
        )
        self.shards = (
            *(["layers"] if tp > 1 or pp > 1 else []),
            *(["positions"] if sequence_parallel and tp > 1 else []),
            *(["parameters", "gradients", "optimizer state"] if shard == "fsdp" else []),
        )

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Refuse degrees that do not make the world size, and what one of the families refuses."""
        return refusal(self.design, job, world_size)

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """Return the mesh that was asked for."""
        return self.design.mesh.sizes

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where sharding would meet a parameter twice on a rank, or backward cannot be taken in halves."""
        return inability(self.design, job, ctx)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """What each family sends of what the others leave of the job; None where stages are cut by measured time."""
        return None if self._unforeseen else _closed.traffic(self.design, job, ctx)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """All-reduces of each layer, activations over each cut, gradients of what a rank holds."""
        return _closed.textbook(self.design, job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory | None:
        """This rank's part of its stages; None where they are cut by measured time."""
        return None if self._unforeseen else _closed.memory(self.design, job, ctx)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut layers, then stages, then shards."""
        return trainer_of(self.design, job, ctx)

    @property
    def _unforeseen(self) -> bool:
        """Whether cuts are known only once blocks are timed."""
        return self.design.size("pp") > 1 and self.design.cutting.split == "time"
