"""A TraceRank traces steps of one rank: what is counted before them, what is read beside them, where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import final

import torch

from parbench.api import Job, Strategy, Trainer
from parbench.capture import Place, captured, count
from parbench.launch.messages import Seat, StepsDone, Trace, TraceDone
from parbench.memory_gauge import gauge_of
from parbench.metering import Metering
from parbench.trace_counters import Counter


@final
class TraceRank:
    """Traces the variants of one rank.

    Args:
        seat: of the rank.
        device: where it computes.
        metering: reads the power of that.
    """

    def __init__(self, seat: Seat, device: torch.device, metering: Metering) -> None:
        self._seat = seat
        self._device = device
        self._metering = metering

    def trace(
        self,
        command: Trace,
        strategy: Strategy,
        trainer: Trainer,
        job: Job,
        mesh: Mapping[str, int],
        alone: AbstractContextManager[object],
        steps: Callable[[int], StepsDone],
    ) -> TraceDone:
        """Count a period of steps where each is like the others, and trace those that follow.

        Args:
            command: how many, and where files go.
            strategy: of the variant.
            trainer: at the end of a period.
            job: what it trains.
            mesh: axis -> ranks along it.
            alone: the variant's own random numbers, while it counts.
            steps: takes the traced steps, from this one on.
        """
        period, counts = strategy.period, None
        if strategy.repeats == "bitwise":
            with alone:
                counts = count(trainer, job.batch, first=command.first, period=period)
        place = Place(rank=self._seat.rank, mesh=mesh, device=self._device, counters=self._counters())
        return captured(command, lambda: steps(command.first + period), counts, place)

    def _counters(self) -> list[Counter]:
        """Return what a trace shows beside its steps; the packages of a host are read by one of its ranks."""
        gauge = gauge_of(self._device)
        found = [] if isinstance(gauge, str) else [Counter(name="memory", unit="bytes", read=gauge.held_bytes)]
        if self._device.type == "cuda" or self._seat.local_rank == 0:
            found += [Counter(name=f"power of {name}", unit="W", read=read) for name, read in self._metering.powers()]
        return found
