"""The header of a trace says whose it is and how its clock is read: torch's, and what parbench adds to its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from parbench.errors import UnreadableError
from parbench.tracing.arguments import whole
from parbench.tracing.chromefile import Document

SCHEMA: Final = "parbench.trace"
MERGED: Final = "parbench.trace.merged"
MAJOR: Final = 1
# More ranks than any job has: what says so is damaged.
_MOST_RANKS: Final = 10**6
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,6})")


class _Version(msgspec.Struct, frozen=True):
    name: str
    major: int


class _Clock(msgspec.Struct, frozen=True):
    monotonic_ns: int
    trace_us: float


class Group(msgspec.Struct, frozen=True):
    """A process group: the axis of the mesh that it is, and its ranks of the world."""

    axis: str | None = None
    members: tuple[int, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the log: a collective without what the profiler knows of it."""

    op: str
    number: int
    step: int | None = None
    group: str | None = None
    dtype: str | None = None
    logical_bytes: float | None = None
    wire_bytes: float | None = None
    issued_ns: int | None = None
    peer: int | None = None


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What a meter showed beside the steps: (nanoseconds of the rank's clock, value in `unit`)."""

    name: str
    unit: str
    values: tuple[tuple[int, float], ...] = ()


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What parbench adds to a trace of its own; see docs/traces.md."""

    schema: _Version
    rank: int
    world_size: int
    backend: str
    host: str = ""
    coordinate: Mapping[str, int] = {}
    clock: _Clock
    axes: Mapping[str, Group] = {}
    collectives: tuple[Row, ...] = ()
    unreadable: Mapping[str, int] = {}
    counters: tuple[Readings, ...] = ()


class _PgConfig(msgspec.Struct, frozen=True):
    ranks: object = None


class _Distributed(msgspec.Struct, frozen=True):
    backend: object = None
    rank: object = None
    world_size: object = None
    pg_config: object = None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Whose trace a file is, and how its clock is read: ns = round(1000 ts) + base_ns."""

    rank: int
    world_size: int
    backend: str
    host: str
    base_ns: int
    own: Own | None
    only_group: Group | None = None
    notes: tuple[str, ...] = ()

    def ns(self, us: float) -> int:
        """Return a time of the file in ns of the rank's clock."""
        return round(us * 1000) + self.base_ns


def header(document: Document, path: Path) -> Header:
    """Return whose trace a file is.

    Raises:
        UnreadableError: parbench wrote it, in a newer version, or it is damaged.
    """
    if document.own is not None:
        own = _own(document.own, path)
        if not 0 <= own.rank < own.world_size <= _MOST_RANKS:
            raise UnreadableError(f"{path}: damaged: rank {own.rank} of {own.world_size}")
        return Header(
            rank=own.rank,
            world_size=own.world_size,
            backend=own.backend,
            host=own.host,
            base_ns=own.clock.monotonic_ns - round(own.clock.trace_us * 1000),
            own=own,
        )
    try:
        said = msgspec.json.decode(document.distributed, type=_Distributed)
    except msgspec.DecodeError:
        said = _Distributed()
    notes = []
    rank = whole(said.rank)
    if rank is None or not 0 <= rank < _MOST_RANKS:
        named = _RANK_IN_NAME.findall(path.name)
        rank = int(named[-1]) if named else 0
        notes.append(f"it does not say whose it is: taken for rank {rank}{' by its name' if named else ''}")
    world_size = min(whole(said.world_size) or 1, _MOST_RANKS)
    name = document.host_name
    return Header(
        rank=rank,
        world_size=max(world_size, rank + 1),
        backend=said.backend if isinstance(said.backend, str) else "",
        host=hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12] if name and document.base_ns else "",
        base_ns=document.base_ns,
        own=None,
        only_group=_only_group(said.pg_config),
        notes=tuple(notes),
    )


def _own(raw: msgspec.Raw, path: Path) -> Own:
    try:
        version = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"null"))
        said = msgspec.json.decode(version, type=_Version)
        if said.name != SCHEMA:
            what = "a merged trace" if said.name == MERGED else f"{said.name[:60]!r}"
            raise UnreadableError(f"{path}: {what}, not a trace of one rank; give the traces of the ranks")
        if said.major > MAJOR:
            raise UnreadableError(
                f"{path}: written by a newer version of parbench ({SCHEMA} {said.major}, this reads {MAJOR}): upgrade"
            )
        return msgspec.json.decode(raw, type=Own)
    except msgspec.DecodeError as error:
        raise UnreadableError(f"{path}: not a whole trace of parbench: {error}") from error


def _only_group(config: object) -> Group | None:
    """Return the one process group of a job, if it has one: then every collective is in it."""
    try:
        groups = msgspec.convert(config, list[_PgConfig]) if isinstance(config, list) else []
    except msgspec.ValidationError:
        return None
    if len(groups) != 1:
        return None
    try:
        return Group(axis="world", members=msgspec.convert(groups[0].ranks, tuple[int, ...]))
    except msgspec.ValidationError:
        return None
