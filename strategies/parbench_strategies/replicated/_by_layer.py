"""Training by layer: a step ends with its backward, and a layer is updated when the next forward comes to it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, ModelTrainer, RankContext
from parbench_strategies.replicated._averaging import Averaging
from parbench_strategies.replicated._engine import Engine
from parbench_strategies.replicated._layer_updates import LayerUpdates


@final
class ByLayer(ModelTrainer):
    """Replicas whose gradients may be on their way until a layer is used again.

    Args:
        job: what is trained.
        ctx: this rank, one of several.
        averaging: of its gradients.
    """

    def __init__(self, job: Job, ctx: RankContext, averaging: Averaging) -> None:
        self._averaging = averaging
        self._updates = LayerUpdates(job, self._engine.land)
        super().__init__(job, ctx, self._updates.optimizers)

    def step(self, batch: Batch) -> Tensor:
        loss = self._averaging.backward(batch)
        self._engine.leave()
        self._updates.expect()
        if self._engine.planned_anew():
            self._updates.make_all()
            self._engine.lay_out()
        return loss

    def drain(self) -> None:
        """Update all layers."""
        self._updates.make_all()

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the engine's notes, and how often a group overtook one that was ready before it."""
        overtaken = sum(later < earlier for earlier, later in pairwise(self._engine.sequence))
        return {**self._averaging.notes(), "groups_out_of_order": overtaken}

    def close(self) -> None:
        self._updates.close()
        self._averaging.close()

    @property
    def _engine(self) -> Engine:
        engine = self._averaging.engine
        if engine is None:
            raise RuntimeError("one rank has no gradients on their way")
        return engine
