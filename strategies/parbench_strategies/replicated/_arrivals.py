"""Arrivals are the moments at which backward makes gradients ready, on the clock of the device that computes them."""

from __future__ import annotations

import time
from statistics import median
from typing import final

import torch


@final
class Arrivals:
    """Takes down a few steps, and says in which order gradients come and how long after the first one.

    Args:
        device: where they are computed.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._now: list[tuple[str, float | torch.cuda.Event]] = []
        self._steps: list[dict[str, float]] = []

    def note(self, name: str) -> None:
        """A gradient is ready now."""
        if not self._cuda:
            self._now.append((name, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._now.append((name, event))

    def step(self) -> None:
        """End a step; on an accelerator this waits for it."""
        noted, self._now = self._now, []
        if not noted:
            return
        if self._cuda:
            torch.cuda.synchronize()
        self._steps.append({name: _seconds(noted[0][1], moment) for name, moment in noted})

    @property
    def steps(self) -> int:
        """Steps taken down so far."""
        return len(self._steps)

    def profile(self) -> dict[str, float]:
        """Return name -> median of seconds after the first gradient, the first step left out, in the order of time."""
        counted = self._steps[1:] or self._steps
        found = {name: median(step.get(name, 0.0) for step in counted) for name in self._steps[-1]}
        return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _seconds(first: float | torch.cuda.Event, moment: float | torch.cuda.Event) -> float:
    if isinstance(first, float) and isinstance(moment, float):
        return moment - first
    if isinstance(first, torch.cuda.Event) and isinstance(moment, torch.cuda.Event):
        return max(0.0, float(first.elapsed_time(moment)) / 1e3)
    raise TypeError("moments of two clocks")
