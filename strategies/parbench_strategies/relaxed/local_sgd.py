"""Local SGD: every rank trains by itself, and once a period the weights of all ranks are averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, final

from parbench.api import Agrees, Job, Memory, Paper, Point, RankContext, Strategy, Textbook, Trainer, replicated_memory
from parbench_strategies.relaxed._closed import averaged_bytes, checked_period, once_a_period
from parbench_strategies.relaxed._local import LocalTrainer, Momentum

_SAME: Final = 1e-9  # 100 x 0.29 is 28.999999999999996


@final
class LocalSgd(Strategy):
    """Averages the weights of all ranks every `period` steps (parallel restarted SGD).

    With SGD and a period of 1 it is synchronous training, with momentum too unless that is reset; Adam is not linear
    in gradients, so that the mean of Adam's steps is not the step of the mean.

    Args:
        period: steps from one average to the next; the paper's I.
        momentum: the optimizer's momenta, at an average, are averaged, kept by each rank, or reset to zero. The paper's
            theory has none.
        heterogeneous: whether a rank takes local steps in proportion to its speed (`--rank-speed`), the fastest one
            `period` of them, so that all come to the average together. A slow rank leaves out the rest of its samples.
    """

    paper = Paper(
        "Parallel Restarted SGD with Faster Convergence and Less Communication: Demystifying Why Model Averaging Works "
        "for Deep Learning (Yu et al., 2019)",
        "https://arxiv.org/abs/1807.06629",
    )
    point = Point(fusion="the model as one message", synchrony="every k steps")
    agrees: Agrees = "differently"

    def __init__(self, period: int = 4, momentum: Momentum = "average", heterogeneous: bool = False) -> None:
        self._period = checked_period(period)
        self.momentum: Momentum = momentum
        self.heterogeneous = heterogeneous
        self.steps_together = not heterogeneous

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
        most = local_steps(self.period, ctx.speeds, ctx.rank) if self.heterogeneous else self.period
        return LocalTrainer(job, ctx, period=self.period, momentum=self.momentum, most=most)


def local_steps(period: int, speeds: Sequence[float], rank: int) -> int:
    """Return how many local steps a rank takes in a period: at least one, and all where no speeds are known.

    Args:
        period: steps of the fastest rank.
        speeds: of all ranks, relative to each other.
        rank: which one.
    """
    return max(1, math.floor(period * speeds[rank] / max(speeds) + _SAME)) if speeds else period
