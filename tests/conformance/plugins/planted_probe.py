"""Planted faults: a probe that counts steps and is wrong in exactly one way, to see which law of probes notices."""

from __future__ import annotations

import threading
import time
from time import sleep
from typing import final

import torch
import torch.distributed as dist

from parbench.api import Probe, RankContext, Series

FAULTS = (
    "none",
    "samples in a thread",
    "stops without start",
    "stops twice",
    "one too many",
    "sleeps",
    "sleeps unseen",
    "reads a tensor",
    "converts a tensor",
    "communicates",
    "communicates by itself",
    "no unit",
    "no source",
    "empty without reason",
    "raises",
    "no sentence",
)


@final
class PlantedProbe(Probe):
    """Counts steps, but for one planted fault.

    Args:
        fault: which one.
    """

    def __init__(self, fault: str = "none") -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, got {fault}")
        self.fault = fault
        self._values: list[float] | None = [] if fault == "stops without start" else None
        self._tensor = torch.ones(1)

    def unsupported(self, ctx: RankContext) -> str | None:
        return "no" if self.fault == "no sentence" else None

    def start(self, ctx: RankContext) -> None:
        self._values, self._ctx, self._ended = [], ctx, threading.Event()
        if self.fault == "samples in a thread":
            threading.Thread(target=self._sample, args=(self._ended,), daemon=True).start()

    def _sample(self, ended: threading.Event) -> None:
        while not ended.is_set():
            time.sleep(0.001)

    def step(self) -> None:
        value = 1.0
        match self.fault:
            case "sleeps":
                time.sleep(0.001)
            case "sleeps unseen":
                sleep(0.001)
            case "reads a tensor":
                value = self._tensor.item()
            case "converts a tensor":
                value = float(self._tensor)
            case "communicates":
                self._ctx.comm.mean(self._tensor)
            case "communicates by itself":
                dist.all_reduce(self._tensor)
            case "raises":
                raise RuntimeError("no luck")
        if self._values is not None:
            self._values.append(value)

    def stop(self) -> list[Series]:
        if self._values is None:
            raise RuntimeError("stop without start")
        values = [*self._values, 0.0] if self.fault == "one too many" and self._values else self._values
        if self.fault != "stops twice":
            self._values = None
            self._ended.set() if hasattr(self, "_ended") else None
        return [
            Series(
                name="steps",
                unit="" if self.fault == "no unit" else "steps",
                better=None,
                values=() if self.fault == "empty without reason" else tuple(values),
                source="" if self.fault == "no source" else "counted",
            )
        ]
