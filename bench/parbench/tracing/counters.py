"""Counters of a merged trace: memory as the profiler saw it, bytes sent so far, and what was read beside the steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from parbench.tracing.chromefile import Event
from parbench.tracing.header import Own
from parbench.tracing.spans import RankTrace


class _Memory(msgspec.Struct, frozen=True):
    total: object = msgspec.field(default=None, name="Total Allocated")


def memory(event: Event, found: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the memory that was allocated at an event of the profiler; `found` says where it is shown."""
    try:
        total = msgspec.json.decode(event.args, type=_Memory).total
    except msgspec.DecodeError:
        return
    if isinstance(total, int | float):
        yield {
            "ph": "C",
            "name": "memory allocated",
            "cat": "counter",
            "pid": found["pid"],
            "tid": 0,
            "ts": found["ts"],
            "args": {"bytes": total},
        }


def readings(own: Own | None, pid: int, shift_ns: int) -> Iterator[dict[str, object]]:
    """Yield what parbench read beside the traced steps: memory of the rank, power of its board."""
    for one in () if own is None else own.counters:
        for at_ns, value in one.values:
            yield {
                "ph": "C",
                "name": one.name,
                "cat": "counter",
                "pid": pid,
                "tid": 0,
                "ts": (at_ns + shift_ns) / 1000,
                "args": {one.unit: value},
            }


def bytes_sent(trace: RankTrace, begin_ns: int) -> Iterator[dict[str, object]]:
    """Yield a counter of the logical bytes that the rank has sent so far."""
    done = sorted(
        (one.end_ns, one.logical_bytes)
        for one in trace.collectives
        if one.end_ns is not None and one.logical_bytes is not None
    )
    total = 0.0
    for end_ns, size in done:
        total += size
        yield {
            "ph": "C",
            "name": "logical bytes sent",
            "cat": "counter",
            "pid": trace.rank,
            "tid": 0,
            "ts": (end_ns - begin_ns) / 1000,
            "args": {"bytes": total},
        }
