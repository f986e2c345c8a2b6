"""The log of a trace is what a profiler does not know of collectives: op, group, bytes; it goes into the same file.

The profiler sees that a step issued `c10d::allreduce_` twice; the byte counter, that the first all-reduce of such a
step moves so much in that group, and the second so much in another. Each row of the log is one event with its numbers.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from parbench.counting import Counted, op_of
from parbench.powerplan import host_here
from parbench.tracing.header import MAJOR, SCHEMA
from parbench.tracing.mesh import axis_of, coordinate
from parbench.tracing.names import OWN_COLLECTIVE, PREFIX

CLOCK: Final = "clock"
_STEP: Final = f"{PREFIX}step"
_SCHEMA: Final = {"name": SCHEMA, "major": MAJOR, "minor": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was seen at the dispatcher.

    Attributes:
        steps: of each step of a period, its collectives in the order in which they were issued.
        in_trace: the traced steps themselves were counted, and `steps` has one entry for all of them.
        unreadable: operators that the counter could not read -> how often they came.
        members: group -> its ranks of the world; without those that torch does not know.
        backend: of torch's groups.
    """

    steps: Sequence[Sequence[Counted]]
    in_trace: bool
    unreadable: Mapping[str, int]
    members: Mapping[str, tuple[int, ...]]
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a trace is to be told.

    Attributes:
        rank: of the mesh.
        mesh: axis -> ranks along it.
        counts: of one period of the traced steps.
        readings_ns: the host's clock right before and after annotations named `CLOCK` began.
        counters: what was read beside the steps, on the same clock.
    """

    rank: int
    mesh: Mapping[str, int]
    counts: Counts
    readings_ns: Sequence[tuple[int, int]]
    counters: Sequence[Mapping[str, object]] = ()


class _Event(msgspec.Struct, frozen=True):
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: int | str = 0
    cat: str = ""

    @property
    def end(self) -> float:
        return self.ts + self.dur


class _Document(msgspec.Struct, rename={"events": "traceEvents"}):
    events: list[_Event] = []


def with_log(data: bytes, log: Log) -> bytes:
    """Return a trace in Chrome's format with the log under the key "parbench".

    Raises:
        ValueError: `data` is no trace, or not one of these steps.
    """
    try:
        events = msgspec.json.decode(data, type=_Document).events
    except msgspec.DecodeError as error:
        raise ValueError(f"the profiler wrote a trace that is no JSON: {error}") from error
    # Kineto shows an annotation once more on the device whose kernels it launched.
    host = [one for one in events if one.cat != "gpu_user_annotation"]
    own = msgspec.json.encode(_described(sorted(host, key=lambda one: one.ts), log))
    # The trace is an object: the key goes before its last brace, and megabytes need not be written anew.
    return data[: data.rindex(b"}")] + b',"parbench":' + own + b"}"


def _described(events: Sequence[_Event], log: Log) -> dict[str, object]:
    everyone = tuple(range(math.prod(log.mesh.values())))
    groups = dict.fromkeys(one.group for step in log.counts.steps for one in step)
    members = {name: log.counts.members.get(name, everyone) for name in groups}
    monotonic_ns, trace_us = _moment([one for one in events if one.name == f"{PREFIX}{CLOCK}"], log.readings_ns)
    return {
        "schema": _SCHEMA,
        "rank": log.rank,
        "world_size": len(everyone),
        "backend": log.counts.backend,
        "host": hashlib.sha256(host_here().encode()).hexdigest()[:12],
        "coordinate": coordinate(log.mesh, log.rank),
        "clock": {"monotonic_ns": monotonic_ns, "trace_us": trace_us},
        "axes": {name: {"axis": axis_of(ranks, log.mesh), "members": ranks} for name, ranks in members.items()},
        "collectives": list(_rows(events, log.counts, members)),
        "unreadable": log.counts.unreadable,
        "counters": log.counters,
    }


def _moment(marks: Sequence[_Event], readings_ns: Sequence[tuple[int, int]]) -> tuple[int, float]:
    """Return the moment known best on both clocks: an annotation starts between the readings around it."""
    if len(marks) != len(readings_ns):
        raise ValueError(f"the trace has {len(marks)} of {len(readings_ns)} marks of the clock")
    pairs = zip(marks, readings_ns, strict=True)
    mark, (before_ns, after_ns) = min(pairs, key=lambda pair: pair[1][1] - pair[1][0])
    return (before_ns + after_ns) // 2, mark.ts


def _rows(
    events: Sequence[_Event], counts: Counts, members: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, object]]:
    """Yield a row per collective that was issued in a step, in order; one that was not counted has no numbers."""
    steps = [one for one in events if one.name == _STEP]
    starts, end = [one.ts for one in steps], max((one.end for one in steps), default=0.0)
    found = [(op, event) for op, event in _issued(events) if starts and starts[0] <= event.ts <= end]
    # A thread of its own may issue what belongs to a step in the next one, but it keeps the order.
    pattern = counts.steps if counts.in_trace else [counts.steps[k % len(counts.steps)] for k in range(len(steps))]
    queues = _queues([one for step in pattern for one in step], [op for op, _ in found])
    for number, (op, event) in enumerate(found):
        row = {"number": number, "step": bisect_right(starts, event.ts) - 1, "issued_ns": round(event.ts * 1e3)}
        yield row | _numbers(op, next(queues[op], None), members)


def _queues(counted: Sequence[Counted], issued: Sequence[str]) -> dict[str, Iterator[Counted]]:
    """Return op -> what was counted of it; where more or fewer were issued nobody knows which is which: nothing."""
    wanted, known = Counter(issued), defaultdict(list)
    for one in counted:
        known[one.op].append(one)
    return {op: iter(known[op] if len(known[op]) == often else ()) for op, often in wanted.items()}


def _issued(events: Sequence[_Event]) -> Iterator[tuple[str, _Event]]:
    """Yield what was issued, in order; an operator that is carried out by another one is that one."""
    until: dict[int | str, float] = {}
    for event in events:
        op = event.name.removeprefix(OWN_COLLECTIVE) if event.name.startswith(OWN_COLLECTIVE) else op_of(event.name)
        if op is not None and event.ts >= until.get(event.tid, -math.inf):
            until[event.tid] = event.end
            yield op, event


def _numbers(op: str, one: Counted | None, members: Mapping[str, Sequence[int]]) -> dict[str, object]:
    if one is None:
        return {"op": op}
    return {
        "op": op,
        "group": one.group,
        "dtype": None if one.dtype is None else str(one.dtype).removeprefix("torch."),
        "logical_bytes": float(one.logical_bytes),
        "wire_bytes": None if one.wire_bytes is None else float(one.wire_bytes),
        "peer": None if one.peer is None else members[one.group][one.peer],
    }
