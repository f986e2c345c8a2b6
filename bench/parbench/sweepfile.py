"""A sweep file says what one `parbench run` planned and whether it came to its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from parbench.filesystem import process_space
from parbench.metrics import Cell
from parbench.record import Schema

SCHEMA = Schema(name="parbench.sweep")
PREFIX = "sweep-"
_MAX_BYTES = 1 << 28


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process, and when it began: numbers of processes are used again."""

    host: str
    pid: int
    began_s: float

    @staticmethod
    def here() -> Owner:
        """Return this process."""
        return Owner(host=process_space(), pid=os.getpid(), began_s=psutil.Process().create_time())

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended; of another host's processes nothing is known."""
        if self.host != process_space():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.began_s) > 1
        except psutil.Error:
            return True


class SweepFile(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep.

    Attributes:
        id: names the sweep; its records hold it too.
        status: "running" until every case has ended or the user has stopped it; one that still says so after its owner
            has gone was cut short too.
        suite: name of the suite.
        machine: fingerprint of the hardware class.
        software: hash of versions and commit.
        planned: (spec_id, repeat) of every case.
        fault: PARBENCH_FAULT, which makes another sweep of the same cells.
        owner: the process at work on it; while that lives, nobody else takes the sweep up.
        cells: once complete, every cell over its fresh launches, with their medians and how far they spread.
    """

    schema: Schema = SCHEMA
    id: str
    status: Literal["running", "interrupted", "complete"]
    suite: str
    machine: str
    software: str
    planned: tuple[tuple[str, int], ...]
    owner: Owner
    fault: str = ""
    cells: tuple[Cell, ...] = ()


def file_name(sweep_id: str) -> str:
    """Return the name of a sweep's file."""
    return f"{PREFIX}{sweep_id}.json"


def encode(sweep: SweepFile) -> bytes:
    """Return the sweep as JSON."""
    return msgspec.json.format(msgspec.json.encode(sweep), indent=1)


def unfinished(folder: Path, like: SweepFile) -> SweepFile | None:
    """Return the newest sweep in `folder` if it planned the same as `like`, here, and was cut short.

    Args:
        folder: the suite's folder.
        like: what is about to be done.
    """
    newest = max(folder.glob(f"{PREFIX}*.json"), default=None, key=lambda path: path.name)
    if newest is None or newest.stat().st_size > _MAX_BYTES:
        return None
    try:
        found = msgspec.json.decode(newest.read_bytes(), type=SweepFile)
    except (msgspec.DecodeError, OSError):
        return None
    same = ("suite", "machine", "software", "planned", "fault", "schema")
    cut_short = found.status == "interrupted" or (found.status == "running" and found.owner.gone)
    return found if cut_short and all(getattr(found, name) == getattr(like, name) for name in same) else None
