"""Post-local SGD: synchronous training first, local SGD after `start` steps."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from parbench.api import Agrees, Job, Memory, Paper, Point, RankContext, Strategy, Textbook, Trainer, replicated_memory
from parbench_strategies.relaxed._closed import MOST_STEPS, averaged_bytes, checked_period, once_a_period
from parbench_strategies.relaxed._local import LocalTrainer, Momentum


@final
class PostLocalSgd(Strategy):
    """Averages gradients in the first `start` steps, and then the weights every `period` steps.

    The paper goes over to local steps where it first lowers the learning rate. Closed forms are of the second phase: a
    run that ends in the first sends more, and its record says so.

    Args:
        start: steps of synchronous training.
        period: steps from one average to the next after that; the paper's H.
        momentum: as in `local_sgd`; the paper keeps each rank's own.
    """

    paper = Paper("Don't Use Large Mini-Batches, Use Local SGD (Lin et al., 2020)", "https://arxiv.org/abs/1808.07217")
    point = Point(fusion="the model as one message", synchrony="every step, later every k steps")
    agrees: Agrees = "differently"

    def __init__(self, start: int = 8, period: int = 4, momentum: Momentum = "keep") -> None:
        if not 0 <= start <= MOST_STEPS:
            raise ValueError(f"start must be from 0 (local steps at once) to {MOST_STEPS}, got {start}")
        self.start = start
        self._period = checked_period(period)
        self.momentum: Momentum = momentum

    @property
    def period(self) -> int:
        """Steps from one average to the next."""
        return self._period

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Per step of a period of the second phase: the model is all-reduced once in it."""
        return averaged_bytes(job, ctx, self.period, momenta=self.momentum == "average")

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all weights, once a period."""
        return once_a_period(job, ctx, self.period)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0."""
        return LocalTrainer(job, ctx, period=self.period, momentum=self.momentum, start=self.start)
