"""Counters of a trace are readings taken beside the traced steps: memory of the rank, power of what it computes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

_PAUSE_S: Final = 5e-3
_MOST_READINGS: Final = 20_000  # of each counter; 100 s of steps


@final
@dataclass(kw_only=True)
class Counter:
    """What one meter showed.

    Attributes:
        name: what it is.
        unit: of the values.
        read: returns the value now, or None where there is none.
        values: (nanoseconds of the host's clock, value).
    """

    name: str
    unit: str
    read: Callable[[], float | None]
    values: list[tuple[int, float]] = field(default_factory=list)

    def told(self) -> Mapping[str, object]:
        """Return it as a trace file has it."""
        return {"name": self.name, "unit": self.unit, "values": self.values}


@final
class Counters:
    """Reads counters in a thread of its own while this context lasts.

    Args:
        counters: what is read.
    """

    def __init__(self, counters: Sequence[Counter]) -> None:
        self._counters = counters
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="parbench-counters", daemon=True)

    def __enter__(self) -> Counters:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def told(self) -> Sequence[Mapping[str, object]]:
        """What was read, as a trace file has it; counters that showed nothing are left out."""
        return [one.told() for one in self._counters if one.values]

    def _read(self) -> None:
        for _ in range(_MOST_READINGS):
            for one in self._counters:
                value = one.read()
                if value is not None:
                    one.values.append((time.perf_counter_ns(), value))
            if self._ended.wait(_PAUSE_S):
                return


def power_from(energy_j: Callable[[], float | None]) -> Callable[[], float | None]:
    """Return power in W from an energy counter in J: the mean between two of its values."""
    last: list[tuple[float, float]] = []

    def read() -> float | None:
        now_j, now_s = energy_j(), time.perf_counter()
        if now_j is None or (last and now_j == last[0][1]):
            return None  # the counter has not moved on
        before, last[:] = list(last), [(now_s, now_j)]
        return (now_j - before[0][1]) / (now_s - before[0][0]) if before else None

    return read
