"""A Sampler looks at meters again and again, on a thread of its own, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol, final

from parbench.energy import Sample


class Meter(Protocol):
    """Something whose power or energy can be read."""

    def read(self) -> tuple[float | None, float | None]:
        """Return power in W and energy in J since some time in the past; None for what cannot be read now."""
        ...


@final
class Sampler:
    """Reads meters every `period_s`; a reading that fails leaves a gap and ends nothing.

    Args:
        meters: what to read.
        period_s: from one look to the next.
    """

    def __init__(self, meters: Sequence[Meter], period_s: float = 0.01) -> None:
        self._meters = meters
        self._period_s = period_s
        self._samples: list[list[Sample]] = [[] for _ in meters]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parbench-power", daemon=True)

    def start(self) -> None:
        """Look once, and go on looking until `stop`."""
        self.look()
        self._thread.start()

    def look(self) -> None:
        """Read every meter now."""
        for meter, samples in zip(self._meters, self._samples, strict=True):
            before_s = time.perf_counter()
            power_w, energy_j = meter.read()
            # A reading may take a while: it is of the middle of that.
            at_s = (before_s + time.perf_counter()) / 2
            samples.append(Sample(at_s=at_s, power_w=power_w, energy_j=energy_j))

    def stop(self, beyond_s: float = 0.0) -> list[list[Sample]]:
        """Stop and return the samples of each meter, in the order of the meters.

        Args:
            beyond_s: how much longer to look: what a window's end is interpolated with.
        """
        self._done.wait(beyond_s)
        self._done.set()
        self._thread.join()
        self.look()
        return self._samples

    def _run(self) -> None:
        while not self._done.wait(self._period_s):
            self.look()
