"""Delayed training uses the averages of some steps ago; with no delay it waits for those of the step itself.

delay 1   step t     forward, backward ─ gradients of t leave ─ wait for those of t-1 ─ update
          step t+1   forward, backward ─ gradients of t+1 leave ─ wait for those of t ─ update
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, ModelTrainer, RankContext
from parbench_strategies.replicated._averaging import Averaging


@final
class Delayed(ModelTrainer):
    """Replicas that all make the same update, with gradients of `delay` steps ago.

    Args:
        job: what is trained.
        ctx: this rank.
        averaging: of its gradients.
        delay: steps.
        warmup: steps at first that wait for their own gradients.
    """

    def __init__(self, job: Job, ctx: RankContext, averaging: Averaging, *, delay: int, warmup: int) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._averaging = averaging
        self._delay, self._warmup = delay, warmup
        self._steps = 0
        # Of each step whose gradients have not been used: these, or None where the engine has them.
        self._late: deque[list[Tensor | None] | None] = deque()

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = self._averaging.backward(batch)
        self._steps += 1
        if self._steps > self._warmup and self._delay:
            self._leave()
        else:
            self._finish()
            self.update()
        return loss

    def drain(self) -> None:
        """Wait until no gradient is on its way; those that are late stay late."""
        if self._averaging.engine is not None:
            self._averaging.engine.land_all()

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the engine's notes, and how late gradients are."""
        late = {"staleness_steps": self._delay, "synchronous_steps": self._warmup} if self._delay else {}
        return {**self._averaging.notes(), **late}

    def close(self) -> None:
        self._averaging.close()

    def _leave(self) -> None:
        """Let this step's gradients go, and update with those that are due."""
        engine = self._averaging.engine
        if engine is not None and engine.settled:
            engine.leave()
            self._late.append(None)
        else:
            self._finish()
            self._late.append([None if p.grad is None else p.grad.clone() for p in self.job.model.parameters()])
        if len(self._late) <= self._delay:
            return
        due = self._late.popleft()
        if due is not None:
            for parameter, grad in zip(self.job.model.parameters(), due, strict=True):
                parameter.grad = grad
        elif engine is not None:
            engine.land_step(ago=self._delay)
        self.update()

    def _finish(self) -> None:
        if self._averaging.engine is not None:
            self._averaging.engine.finish()
