"""Local SGD: every rank trains by itself, and once a period the weights of all ranks are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from parbench.api import Agrees, Job, Memory, Paper, RankContext, Strategy, Textbook, Trainer, replicated_memory
from parbench_strategies.relaxed._closed import averaged_bytes, checked_period, once_a_period
from parbench_strategies.relaxed._local import LocalTrainer, Momentum


@final
class LocalSgd(Strategy):
    """Averages the weights of all ranks every `period` steps (parallel restarted SGD).

    With SGD and a period of 1 it is synchronous training, with momentum too unless that is reset; Adam is not linear
    in gradients, so that the mean of Adam's steps is not the step of the mean.

    Args:
        period: steps from one average to the next; the paper's I.
        momentum: the optimizer's momenta, at an average, are averaged, kept by each rank, or reset to zero. The paper's
            theory has none.
    """

    paper = Paper(
        "Parallel Restarted SGD with Faster Convergence and Less Communication: Demystifying Why Model Averaging Works "
        "for Deep Learning (Yu et al., 2019)",
        "https://arxiv.org/abs/1807.06629",
    )
    agrees: Agrees = "differently"

    def __init__(self, period: int = 4, momentum: Momentum = "average") -> None:
        self._period = checked_period(period)
        self.momentum: Momentum = momentum

    @property
    def period(self) -> int:
        """Steps from one average to the next."""
        return self._period

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Per step of a period: the model, and momenta where they are averaged, are all-reduced once in it."""
        return averaged_bytes(job, ctx, self.period, momenta=self.momentum == "average")

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all weights, once a period."""
        return once_a_period(job, ctx, self.period)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0."""
        return LocalTrainer(job, ctx, period=self.period, momentum=self.momentum)
