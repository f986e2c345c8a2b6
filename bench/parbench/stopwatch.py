"""A Stopwatch tells apart where the exchange of a step's gradients spends its time, on this rank's clock.

comm thread      encode a  encode b      decode a             decode b
wire                      ====a====|=======b=======|                      transfer: at least one is on its way
stepping thread  ······ backward ······|---- waits ------------------|     exposed: nothing else is done
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, final

from parbench.annotations import annotated
from parbench.collective import InFlight
from parbench.comm import Handle

Part = Literal["encode", "decode"]


@final
class Stopwatch:
    """Sums of seconds over steps.

    One thread at a time encodes, decodes and waits for messages; `exposed` and `step` are the stepping thread's, and
    whoever completes a message may stamp its end.

    Host clocks say nothing of work on an accelerator: where tensors are on one, nothing is told.

    Args:
        on: whether to measure at all.
    """

    def __init__(self, on: bool = True) -> None:
        self._on = on
        self._steps = 0
        self._spent_s: dict[Part, float] = {"encode": 0.0, "decode": 0.0}
        self._exposed_s = 0.0
        self._transfer_s = 0.0
        self._within_s = 0.0  # of the part that is being measured, what was spent on messages
        self._flights: list[tuple[float, float]] = []
        self._told = True  # whether every message says when it has arrived

    @contextlib.contextmanager
    def spends(self, part: Part) -> Iterator[None]:
        """Count what is done in this context as `part`, but for the time that messages take."""
        if not self._on:
            with annotated("compression"):
                yield
            return
        outer_s, self._within_s = self._within_s, 0.0
        started_s = time.perf_counter()
        try:
            with annotated("compression"):
                yield
        finally:
            elapsed_s = time.perf_counter() - started_s
            self._spent_s[part] += elapsed_s - self._within_s
            self._within_s = outer_s + elapsed_s

    @contextlib.contextmanager
    def exposed(self) -> Iterator[None]:
        """Count all of this context as time in which the step waits; used by the stepping thread."""
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._exposed_s += time.perf_counter() - started_s

    def start(self, begin: Callable[[], InFlight]) -> InFlight:
        """Begin a message and note how long it is on its way."""
        if not self._on:
            return begin()
        began_s = time.perf_counter()
        flight = begin()
        now_s = time.perf_counter()
        self._within_s += now_s - began_s
        if flight.done():
            self._flights.append((began_s, now_s))
            return flight
        if not isinstance(flight, Handle) or flight.work is None:
            self._told = False
            return flight
        # In a thread of the backend: this may only look at the clock.
        flight.work.get_future().add_done_callback(lambda _: self._flights.append((began_s, time.perf_counter())))
        return flight

    def wait(self, flight: InFlight) -> None:
        """Wait for a message."""
        began_s = time.perf_counter()
        flight.wait()
        self._within_s += time.perf_counter() - began_s

    def step(self) -> None:
        """End a step."""
        self._steps += 1
        flights, self._flights = self._flights, []
        reached_s = 0.0
        for began_s, ended_s in sorted(flights):
            self._transfer_s += max(0.0, ended_s - max(began_s, reached_s))
            reached_s = max(reached_s, ended_s)

    def reset(self) -> None:
        """Forget everything so far."""
        self._steps, self._transfer_s, self._exposed_s = 0, 0.0, 0.0
        self._spent_s = dict.fromkeys(self._spent_s, 0.0)
        self._flights = []

    def means(self) -> Mapping[str, float]:
        """Return seconds per step: "encode_s", "transfer_s", "decode_s", "exposed_s"; nothing before the first step.

        Where messages go by a transport that does not say when one has arrived, "transfer_s" is left out.
        """
        if not (self._on and self._steps):
            return {}
        spent = {"encode_s": self._spent_s["encode"]}
        if self._told:
            spent["transfer_s"] = self._transfer_s
        spent |= {"decode_s": self._spent_s["decode"], "exposed_s": self._exposed_s}
        return {name: seconds / self._steps for name, seconds in spent.items()}
