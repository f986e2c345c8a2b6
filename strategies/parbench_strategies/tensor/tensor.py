"""Tensor parallelism: every rank of a group computes a part of each layer, as Megatron-LM cuts layers.

    x ──> column-cut layer ──> bend ──> row-cut layer ──> all-reduce ──> + bias ──> y
          its outputs are shared out    its inputs are      forward
    the gradient of x is all-reduced in backward

Sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models") shares
out positions where the layers would repeat each other's work; an all-gather before each column-cut layer and a
reduce-scatter after each row-cut one take the place of the all-reduces. Gathered inputs are kept for backward, where
the paper gathers them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from parbench.api import Job, Memory, Paper, RankContext, Strategy, Textbook, Trainer
from parbench_strategies.tensor import _closed
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._plan import Plan, plan_of
from parbench_strategies.tensor._refusals import refusal
from parbench_strategies.tensor._trainer import TensorsTrainer


@final
class Tensors(Strategy):
    """Cuts layers by column and row where the workload says so; replicas of such groups share out the batch.

    Args:
        degree: ranks that share out each layer, neighbours of each other; 0 takes all.
        sequence_parallel: share out positions between the cut layers, instead of repeating norms and residuals.
        loss_parallel: cut the layer that gives logits along the vocabulary, and compute the loss on the parts.
    """

    paper = Paper(
        "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism (Shoeybi et al., 2019)",
        "https://arxiv.org/abs/1909.08053",
    )
    agrees = "closely"
    consumes_model = True

    def __init__(self, degree: int = 0, sequence_parallel: bool = False, loss_parallel: bool = False) -> None:
        if degree < 0:
            raise ValueError(f"degree must be 1 or more, or 0 for all ranks, got {degree}")
        self.degree = degree
        self.sequence_parallel = sequence_parallel
        self.loss_parallel = loss_parallel
        self.shards = ("layers", "positions") if sequence_parallel else ("layers",)

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Say so where ranks do not make a grid, nothing can be cut, or a cut would divide what must stay whole."""
        return refusal(
            job,
            world_size,
            self.degree or world_size,
            sequence_parallel=self.sequence_parallel,
            loss_parallel=self.loss_parallel,
        )

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """Replicas, and the ranks that share out each layer."""
        degree = self.degree or world_size
        return {"dp": world_size // degree, "tp": degree}

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """What crosses the edges of cut layers in every micro-batch, and gradients over replicas once per step."""
        grid, plan = self._spread(job, ctx)
        return _closed.traffic(job, ctx, grid, plan)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """Four all-reduces of B T D per layer and micro-batch, or as many pairs of all-gather and reduce-scatter."""
        grid, plan = self._spread(job, ctx)
        return _closed.textbook(job, ctx, grid, plan, sequence_parallel=self.sequence_parallel)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """A part of what is cut, everything else whole; parts of a vocabulary may differ by one word."""
        grid, plan = self._spread(job, ctx)
        return _closed.memory(job, grid, plan)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut the layers; every tensor group gets its share of the batch."""
        grid, plan = self._spread(job, ctx)
        return TensorsTrainer(job, ctx, grid, plan)

    def _spread(self, job: Job, ctx: RankContext) -> tuple[Grid, Plan]:
        degree = self.degree or ctx.world_size
        plan = plan_of(job, degree, sequence_parallel=self.sequence_parallel, loss_parallel=self.loss_parallel)
        return Grid.of(ctx, degree), plan
