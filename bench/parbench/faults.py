"""Injected faults, a test aid: PARBENCH_FAULT="rank=1,step=3,kind=raise" makes a rank fail where a test wants it to.

Keys: rank, step (the first step it acts in; the first training step is 0), kind = raise | exit | segv | kill | hang |
nan | slow | oom; `factor` (slow: how many times longer each step takes), `until` (slow, nan: the last step it acts in),
`strategy` (acts only in runs of that strategy string).
"""

from __future__ import annotations

import os
import signal
import time
from typing import Literal

import msgspec

from parbench.errors import UsageError

Kind = Literal["raise", "exit", "segv", "kill", "hang", "nan", "slow", "oom"]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a rank is made to fail."""

    rank: int
    step: int
    kind: Kind
    factor: float = 1.5
    until: int | None = None
    strategy: str | None = None

    def acts(self, rank: int, step: int, strategy: str) -> bool:
        """Return whether it acts in this rank's step."""
        if rank != self.rank or (self.strategy is not None and strategy != self.strategy):
            return False
        if self.kind in ("slow", "nan"):
            return self.step <= step and (self.until is None or step <= self.until)
        return step == self.step


def parse_fault(text: str) -> Fault | None:
    """Read PARBENCH_FAULT.

    Args:
        text: comma-separated key=value pairs; empty means no fault.

    Raises:
        UsageError: a key or value is not one of those allowed.
    """
    if not text.strip():
        return None
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    fields = {key.strip(): value.strip() for key, value in pairs.items()}
    try:
        return msgspec.convert(fields, Fault, strict=False)
    except msgspec.ValidationError:
        raise UsageError(
            f"PARBENCH_FAULT={text!r} is not understood; give rank=K,step=K,kind=raise|exit|segv|kill|hang|nan|slow|oom"
            "[,factor=F][,until=K][,strategy=S]"
        ) from None


def strike(fault: Fault) -> None:
    """End or stall this process as `fault` says; "nan" and "slow" are the loop's matter."""
    match fault.kind:
        case "raise":
            raise ZeroDivisionError("injected by PARBENCH_FAULT")
        case "oom":
            raise MemoryError("injected by PARBENCH_FAULT: can't allocate memory: you tried to allocate 1 bytes")
        case "exit":
            os._exit(17)
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(1e6)
        case "nan" | "slow":
            return
