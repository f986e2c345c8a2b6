"""One process trains the whole global batch: the reference every other strategy is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward


@final
class Single(Strategy):
    """Trains the whole global batch in one process, whatever the world size."""

    paper = Paper("Stochastic gradient descent (Robbins and Monro, 1951)", "https://doi.org/10.1214/aoms/1177729586")
    agrees = "exactly"
    ranks = 1

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Nothing is sent."""
        return {}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Train `job` as it is."""
        return _SingleTrainer(job, ctx)


@final
class _SingleTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        self._ctx = ctx
        self._optimizer = job.optimizer(job.model.parameters())

    def step(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = backward(self._job, self._ctx, self._job.model, batch)
        self._optimizer.step()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self._job.model.named_parameters())
