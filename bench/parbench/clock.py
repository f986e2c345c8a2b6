"""Clocks that mark the ends of steps without making a rank wait: the host's counter on a CPU, events on a GPU."""

from __future__ import annotations

import abc
import time
from typing import final

import torch


class Clock(abc.ABC):
    """Marks points of a round; durations are read after it."""

    @abc.abstractmethod
    def start(self) -> None:
        """Wait until earlier device work is complete, forget old marks and set the first one."""

    @abc.abstractmethod
    def mark(self) -> None:
        """Set a mark, without waiting for device work."""

    @abc.abstractmethod
    def finish(self) -> float:
        """Wait until device work is complete and return the wall seconds since `start`."""

    @abc.abstractmethod
    def intervals(self) -> list[float]:
        """Return the seconds between consecutive marks; only after `finish`."""


@final
class HostClock(Clock):
    """perf_counter_ns: right where work is complete when a call returns."""

    def __init__(self) -> None:
        self._marks: list[int] = []

    def start(self) -> None:
        self._marks = [time.perf_counter_ns()]

    def mark(self) -> None:
        self._marks.append(time.perf_counter_ns())

    def finish(self) -> float:
        return (time.perf_counter_ns() - self._marks[0]) / 1e9

    def intervals(self) -> list[float]:
        return [(b - a) / 1e9 for a, b in zip(self._marks, self._marks[1:], strict=False)]


@final
class CudaClock(Clock):
    """CUDA events for the steps, the host's counter around the whole round; the two must agree."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._started_ns = 0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._events = []
        self._started_ns = time.perf_counter_ns()
        self.mark()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def finish(self) -> float:
        torch.cuda.synchronize(self._device)
        return (time.perf_counter_ns() - self._started_ns) / 1e9

    def intervals(self) -> list[float]:
        return [a.elapsed_time(b) / 1e3 for a, b in zip(self._events, self._events[1:], strict=False)]


def clock_for(device: torch.device) -> Clock:
    """Return the clock that is right for `device`."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
