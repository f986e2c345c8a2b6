"""Contention: how often the kernel took the processor away from this rank, and how much processor time a step cost.

Involuntary context switches and user + system time come from getrusage(2): counters that the kernel keeps anyway.
A step that takes longer than its processor time was waiting: for other ranks, for the network, or for a core.
"""

from __future__ import annotations

import itertools
import resource
from typing import final

from parbench.api import Probe, RankContext, Series


@final
class Contention(Probe):
    """Counts involuntary context switches and processor time per step of this rank's process."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] | None = None

    def start(self, ctx: RankContext) -> None:
        """Take the first reading."""
        self._marks = [_reading()]

    def step(self) -> None:
        """Take a reading."""
        if self._marks is not None:
            self._marks.append(_reading())

    def stop(self) -> list[Series]:
        """Return the differences between readings."""
        if self._marks is None:
            raise RuntimeError("stop without start: call start(ctx) before the first step")
        marks, self._marks = self._marks, None
        pairs = list(itertools.pairwise(marks))
        return [
            Series(
                name="involuntary_switches_per_step",
                unit="switches",
                better="lower",
                values=tuple(float(b[0] - a[0]) for a, b in pairs),
                source="getrusage: ru_nivcsw of the rank's process",
            ),
            Series(
                name="processor_time_s_per_step",
                unit="s",
                better="lower",
                values=tuple(b[1] - a[1] for a, b in pairs),
                source="getrusage: ru_utime + ru_stime of the rank's process, all its threads",
            ),
        ]


def _reading() -> tuple[int, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nivcsw, usage.ru_utime + usage.ru_stime
