"""Averaging is the engine of one trainer, with what a record is told of it; one rank has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, RankContext, Stopwatch, backward
from parbench_strategies.compression import Nothing
from parbench_strategies.replicated._closed import sent_bytes
from parbench_strategies.replicated._engine import Engine
from parbench_strategies.replicated._starting import Axes, engine_of


@final
class Averaging:
    """An engine, if there is anybody to exchange with.

    Args:
        job: whose gradients are averaged.
        ctx: this rank.
        axes: how.
        stopwatch: told what takes how long.

    Attributes:
        engine: averages; None for one rank.
    """

    def __init__(self, job: Job, ctx: RankContext, axes: Axes, stopwatch: Stopwatch) -> None:
        self._job, self._ctx = job, ctx
        self._stopwatch = stopwatch
        self.engine: Engine | None = engine_of(job, ctx, axes, stopwatch)
        self._compressed: dict[str, str | float] = {}
        if self.engine is not None and not axes.compressor.passes_through:
            self._compressed["compressor"] = axes.compressor.name
            dense = sent_bytes(job, ctx, axes.fusion, Nothing(), axes.collective)
            if dense is not None:
                self._compressed["dense_bytes"] = float(sum(dense.values()))

    def backward(self, batch: Batch) -> Tensor:
        """Begin a step, and return its loss once this rank's gradients are handed over."""
        if self.engine is None:
            return backward(self._job, self._ctx, self._job.model, batch)
        self.engine.begin()
        return backward(self._job, self._ctx, self._job.model, batch, hold=self.engine.hold)

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the plan, what it is about, and where a step's exchange spends its time on this rank."""
        if self.engine is None:
            return {}
        return {**self.engine.notes(), **self._compressed, **self._stopwatch.means()}

    def close(self) -> None:
        """End the engine."""
        if self.engine is not None:
            self.engine.close()
