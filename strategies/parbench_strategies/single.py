"""One process trains the whole global batch: the reference every other strategy is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    backward,
    replicated_memory,
)


@final
class Single(Strategy):
    """Trains the whole global batch in one process, whatever the world size."""

    paper = Paper("Stochastic gradient descent (Robbins and Monro, 1951)", "https://doi.org/10.1214/aoms/1177729586")
    agrees = "exactly"
    ranks = 1
    takes_sparse = True

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Nothing is sent."""
        return {}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """Nothing is sent."""
        return Textbook(formula="0", sent_bytes=Fraction(0))

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """The whole model, its gradients and all optimizer state."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Train `job` as it is."""
        return _SingleTrainer(job, ctx)


@final
class _SingleTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        self.update()
        return loss
