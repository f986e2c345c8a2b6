"""Wire: the bytes this rank's link carried, read from the counters of its interface.

Where links are shaped each rank has an interface of its own; /proc/self/net/dev counts what passed it, headers and
acknowledgements included. Loopback, which ranks use otherwise, counts all ranks together.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import final

from parbench.api import Probe, RankContext, Series

# What links are called by `parbench.network.plan`.
_OWN, _SHARED = b"pbrank", b"pbnode"
_COUNTERS = Path("/proc/self/net/dev")
_LONGEST = 1 << 16
_SENT = 8  # the ninth number of a line; the first is what was received


@final
class Wire(Probe):
    """Counts the bytes that this rank's link sent and received per step."""

    def __init__(self) -> None:
        self._marks: list[bytes] | None = None
        self._file: int | None = None
        self._reason: str | None = None

    def unsupported(self, ctx: RankContext) -> str | None:
        """Say why there are no counters of this rank alone."""
        try:
            found = _COUNTERS.read_bytes()
        except OSError as error:
            return f"this system does not count the bytes of its interfaces: {error}"
        if _bytes(found) is not None:
            return None
        if _SHARED + b":" in found:
            return "several ranks share this node's interface, whose counters do not tell them apart"
        return "the ranks share the interfaces of this machine, whose counters do not tell them apart; use --network"

    def start(self, ctx: RankContext) -> None:
        """Take the first reading; the barrier that follows adds some hundred bytes to the first step."""
        self._reason = self.unsupported(ctx)
        self._marks = []
        if self._reason is None:
            self._file = os.open(_COUNTERS, os.O_RDONLY | os.O_CLOEXEC)
        self.step()

    def step(self) -> None:
        """Take a reading, to be made sense of later."""
        if self._marks is not None and self._file is not None:
            self._marks.append(os.pread(self._file, _LONGEST, 0))

    def stop(self) -> list[Series]:
        """Return the differences between readings."""
        if self._marks is None:
            raise RuntimeError("stop without start: call start(ctx) before the first step")
        marks, self._marks = self._marks, None
        if self._file is not None:
            os.close(self._file)
            self._file = None
        readings = [found for mark in marks if (found := _bytes(mark)) is not None]
        return [
            Series(
                name=name,
                unit="bytes",
                better="lower",
                values=tuple(float(b[k] - a[k]) for a, b in itertools.pairwise(readings)),
                source=f"/proc/self/net/dev of the rank's own link: {word} bytes, headers included",
                reason=self._reason,
            )
            for k, (name, word) in enumerate(
                (("wire_bytes_per_step", "sent"), ("wire_bytes_received_per_step", "received"))
            )
        ]


def _bytes(counters: bytes) -> tuple[int, int] | None:
    """Return bytes sent and received by the interface that is one rank's own; None where there is none."""
    for line in counters.splitlines():
        name, colon, numbers = line.partition(b":")
        if colon and name.strip() == _OWN:
            fields = numbers.split()
            return int(fields[_SENT]), int(fields[0])
    return None
