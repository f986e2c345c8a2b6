"""A sweep file says what one `parbench run` planned and whether it came to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from parbench.metrics import Cell
from parbench.record import Schema

SCHEMA = Schema(name="parbench.sweep")
PREFIX = "sweep-"
_MAX_BYTES = 1 << 28


class SweepFile(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep.

    Attributes:
        id: names the sweep; its records hold it too.
        status: "running" until every case has ended; a sweep that still says so was cut short.
        suite: name of the suite.
        machine: fingerprint of the hardware class.
        software: hash of versions and commit.
        planned: (spec_id, repeat) of every case.
        cells: once complete, every cell over its fresh launches, with their medians and how far they spread.
    """

    schema: Schema = SCHEMA
    id: str
    status: Literal["running", "complete"]
    suite: str
    machine: str
    software: str
    planned: tuple[tuple[str, int], ...]
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
    same = ("suite", "machine", "software", "planned", "schema")
    if found.status == "running" and all(getattr(found, name) == getattr(like, name) for name in same):
        return found
    return None
