"""A LocalTrainer takes steps by itself and averages the model over ranks once a period.

rank 0   step  step  step  step ┐ mean of weights ┌ step  step ...
rank 1   step  step  step  step ┘                 └ step  step ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

from torch import Tensor

from parbench.api import Batch, Job, ModelTrainer, RankContext, backward
from parbench_strategies.relaxed._averaging import average, averaged, drifting, forget, momenta, start_equal

Momentum = Literal["average", "keep", "reset"]


@final
class LocalTrainer(ModelTrainer):
    """Trains as local SGD does.

    A rank's gradient is of its share's summed loss, divided by the mean size of a share: with shares of one size that
    is the share's mean loss, and the mean over ranks is always that of the global batch.

    Args:
        job: what is trained.
        ctx: this rank.
        period: steps from one average to the next.
        momentum: what becomes of the optimizer's momenta at an average.
        start: steps of synchronous training before that.
        most: local steps of this rank in a period; it leaves out the rest, and waits for the average.
    """

    def __init__(
        self, job: Job, ctx: RankContext, *, period: int, momentum: Momentum, start: int = 0, most: int | None = None
    ) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        start_equal(job.model, ctx.comm)
        self._period, self._momentum, self._start = period, momentum, start
        self._most = period if most is None else most
        self._steps = self._averages = self._left_out = 0

    def step(self, batch: Batch) -> Tensor | None:
        loss = None
        if self._apart_for < self._most:
            loss = self._train(batch)
        else:
            self._left_out += batch.share(self.ctx.rank, self.ctx.world_size).samples
        self._steps += 1
        if self._apart_for == 0 and self._steps > self._start:
            self._make_equal()
        return loss

    def _train(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        if self._steps < self._start:
            average([p.grad for p in self.job.model.parameters() if p.grad is not None], self.ctx.comm)
        self.update()
        return loss

    def left_out(self) -> int:
        """Return how many samples a slow rank has not come to."""
        return self._left_out

    @property
    def _apart_for(self) -> int:
        """Steps since ranks were equal."""
        return max(0, self._steps - self._start) % self._period

    def _make_equal(self) -> None:
        self._averages += 1
        together = drifting(self.job.model)
        for optimizer in self.optimizers:
            if self._momentum == "average":
                together += momenta(optimizer)
            elif self._momentum == "reset":
                forget(optimizer)
        average(together, self.ctx.comm)

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return the mean over ranks, which is what an average would give now."""
        mine = super().full_parameters()
        return averaged(mine.items(), self.ctx.comm) if self._apart_for else mine

    def full_buffers(self) -> Mapping[str, Tensor]:
        """Return the mean over ranks."""
        return averaged(super().full_buffers().items(), self.ctx.comm)

    def notes(self) -> Mapping[str, str | int | float]:
        """Return how many steps were local: LSSR, the ratio of local steps to all (Tyagi and Swany 2023)."""
        synchronised = self._averages + min(self._steps, self._start)
        lssr = 1 - synchronised / self._steps if self._steps else 0.0
        return {"synchronised_steps": synchronised, "lssr": lssr, "local_steps_per_period": self._most}
