"""Reading a trace in Chrome's format: parbench's own, or that of any job that ran under torch.profiler."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from parbench.errors import UnreadableError
from parbench.tracing import gloo, nccl
from parbench.tracing.arguments import arguments, dtype_name, element_bytes, shapes, whole
from parbench.tracing.chromefile import Document, Event, load
from parbench.tracing.ideal import sent_bytes
from parbench.tracing.names import OWN_COLLECTIVE, is_call, is_nccl, kind_of, op_of
from parbench.tracing.spans import Collective, RankTrace, Span

SCHEMA: Final = "parbench.trace"
MAJOR: Final = 1
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST = frozenset({"cpu_op", "user_annotation"})
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,6})")


class _Version(msgspec.Struct, frozen=True):
    name: str
    major: int


class _Clock(msgspec.Struct, frozen=True):
    monotonic_ns: int
    trace_us: float


class _Group(msgspec.Struct, frozen=True):
    axis: str | None = None
    members: tuple[int, ...] = ()


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the log: a collective without what the profiler knows of it."""

    op: str
    number: int
    step: int | None = None
    group: str | None = None
    dtype: str | None = None
    logical_bytes: float | None = None
    wire_bytes: float | None = None
    issued_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    peer: int | None = None


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What parbench adds to a trace of its own; see docs/traces.md."""

    schema: _Version
    rank: int
    world_size: int
    backend: str
    host: str = ""
    coordinate: Mapping[str, int] = {}
    clock: _Clock
    axes: Mapping[str, _Group] = {}
    collectives: tuple[_Row, ...] = ()
    unreadable: Mapping[str, int] = {}


class _PgConfig(msgspec.Struct, frozen=True):
    pg_name: object = None
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
    only_group: _Group | None = None
    notes: tuple[str, ...] = ()

    def ns(self, us: float) -> int:
        """Return a time of the file in ns of the rank's clock."""
        return round(us * 1000) + self.base_ns


def read(path: Path | str) -> RankTrace:
    """Return what one rank was seen to do.

    Raises:
        UnreadableError: the file cannot be read, is damaged, is no trace, or is of a newer version.
    """
    path = Path(path)
    document = load(path)
    return understood(document, header(document, path))


def header(document: Document, path: Path) -> Header:
    """Return whose trace a file is.

    Raises:
        UnreadableError: parbench wrote it, in a newer version, or it is damaged.
    """
    if document.own is not None:
        own = _own(document.own, path)
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
    if rank is None:
        named = _RANK_IN_NAME.findall(path.name)
        rank = int(named[-1]) if named else 0
        notes.append(f"no distributedInfo: taken for rank {rank}{' by its name' if named else ''}")
    world_size = whole(said.world_size) or 1
    name = document.host_name
    return Header(
        rank=rank,
        world_size=max(world_size, 1),
        backend=said.backend if isinstance(said.backend, str) else "",
        host=hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12] if name and document.base_ns else "",
        base_ns=document.base_ns,
        own=None,
        only_group=_only_group(said.pg_config),
        notes=tuple(notes),
    )


def understood(document: Document, whose: Header) -> RankTrace:
    """Return what the events of a file mean."""
    spans, notes = [], [*document.notes, *whose.notes]
    calls: list[nccl.Call] = []
    kernels: list[nccl.Kernel] = []
    issued: list[Event] = []
    launches: dict[int, int] = {}
    late: list[tuple[Event, int | None, int | None]] = []
    for event in document.events:
        if event.ph != "X" or not event.dur >= 0:
            continue
        if event.cat in _HOST:
            spans.append(_host_span(event, whose))
            if event.name == nccl.RECORD:
                calls.append(nccl.Call(time_ns=whose.ns(event.ts), args=arguments(event.args)))
            elif event.cat == "cpu_op" and is_call(event.name):
                issued.append(event)
        elif event.cat in _DEVICE:
            args = arguments(event.args)
            late.append((event, whole(args.correlation), whole(args.external)))
        elif event.cat in ("cuda_runtime", "cuda_driver"):
            number = whole(arguments(event.args).correlation)
            if number is not None:
                launches[number] = whose.ns(event.ts)
    recorded = {whole(call.args.external) for call in calls} - {None}
    for event, correlation, external in late:
        if is_nccl(event.name) or external in recorded or "PtoP" in event.name:
            start, end = _times(event, whose)
            kernels.append(nccl.Kernel(name=event.name, start_ns=start, end_ns=end, args=arguments(event.args)))
        else:
            spans.append(_device_span(event, whose, launches.get(correlation or 0)))
    marked = any(span.name.startswith("parbench:step") for span in spans)
    kept = [span for span in spans if not (marked and span.name.startswith("ProfilerStep#"))]
    ordered = sorted(kept, key=lambda one: (one.start_ns, -one.end_ns))
    found, candidates, recognised = _collectives(whose, ordered, issued, calls, kernels, notes)
    return RankTrace(
        rank=whose.rank,
        world_size=whose.world_size,
        backend=whose.backend,
        host=whose.host,
        coordinate=whose.own.coordinate if whose.own else {},
        spans=tuple(ordered),
        collectives=tuple(found),
        candidates=candidates,
        recognised=recognised,
        notes=tuple(notes),
    )


def _own(raw: msgspec.Raw, path: Path) -> Own:
    try:
        version = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"null"))
        said = msgspec.json.decode(version, type=_Version)
        if said.name != SCHEMA:
            raise UnreadableError(f"{path}: its parbench part is {said.name!r}, not {SCHEMA}")
        if said.major > MAJOR:
            raise UnreadableError(
                f"{path}: written by a newer version of parbench ({SCHEMA} {said.major}, this reads {MAJOR}): upgrade"
            )
        return msgspec.json.decode(raw, type=Own)
    except msgspec.DecodeError as error:
        raise UnreadableError(f"{path}: not a whole trace of parbench: {error}") from error


def _only_group(config: object) -> _Group | None:
    """Return the one process group of a job, if it has one: then every collective is in it."""
    try:
        groups = msgspec.convert(config, list[_PgConfig]) if isinstance(config, list) else []
    except msgspec.ValidationError:
        return None
    if len(groups) != 1:
        return None
    try:
        return _Group(axis="world", members=msgspec.convert(groups[0].ranks, tuple[int, ...]))
    except msgspec.ValidationError:
        return None


def _times(event: Event, whose: Header) -> tuple[int, int]:
    start = whose.ns(event.ts)
    return start, max(start, whose.ns(event.ts + event.dur))


def _host_span(event: Event, whose: Header) -> Span:
    start, end = _times(event, whose)
    kind = kind_of(event.name, event.cat)
    args: dict[str, str | int | float] = {}
    if event.cat == "cpu_op":
        said = arguments(event.args)
        sequence = whole(said.sequence)
        # Recorded for the backward pass, so part of a forward one; in backward the thread that recorded it is named.
        if sequence is not None and sequence >= 0 and not whole(said.forward_thread) and "::" in event.name:
            args["sequence"] = sequence
    if kind == "collective":
        types = arguments(event.args).types
        dtype = next((one for one in types if element_bytes(one)), None) if isinstance(types, list) else None
        args |= {} if dtype is None else {"dtype": str(dtype_name(dtype))}
    # What the backend does is shown on the thread that began it, where it crosses what that does next.
    thread = f"{event.tid} backend" if kind == "collective" else str(event.tid)
    return Span(name=event.name, kind=kind, start_ns=start, end_ns=end, thread=thread, args=args)


def _device_span(event: Event, whose: Header, launched_ns: int | None) -> Span:
    start, end = _times(event, whose)
    return Span(
        name=event.name,
        kind="operator" if event.cat == "kernel" else "other",
        start_ns=start,
        end_ns=end,
        thread=f"device {event.pid} stream {event.tid}",
        device=True,
        args={} if launched_ns is None else {"launched_ns": launched_ns},
    )


def _collectives(
    whose: Header,
    spans: Sequence[Span],
    issued: Sequence[Event],
    calls: Sequence[nccl.Call],
    kernels: Sequence[nccl.Kernel],
    notes: list[str],
) -> tuple[list[Collective], int, int]:
    """Return the collectives in order of issue, how many events might have been some, and how many were."""
    if kernels or calls:
        seen = nccl.collectives(calls, kernels)
        found = _in_steps(seen.collectives, spans)
        candidates, recognised = seen.candidates, seen.recognised
    else:
        elements: list[int | None] = []
        listed = _logged(whose.own, whose) if whose.own else _in_steps(_from_calls(issued, whose, elements), spans)
        own = {span.start_ns: span for span in spans if span.name.startswith(OWN_COLLECTIVE)}
        listed = [_as_annotated(one, own) for one in listed]
        events = [span for span in spans if span.name.startswith("gloo:") and _inside(span, listed)]
        found, unmatched = gloo.timed(listed, events)
        found = [_sized(one, count, whose) for one, count in zip(found, elements, strict=True)] if elements else found
        candidates, recognised = len(events), len(events) - unmatched
        untimed = sum(1 for one in found if one.end_ns is None)
        if untimed:
            notes.append(f"{untimed} of {len(found)} collectives have no event that says when they ran")
        if whose.own is None and whose.only_group is None and whose.world_size > 2 and found:
            notes.append("gloo does not say which group a collective is in: all are taken for collectives of all ranks")
    if whose.own and whose.own.unreadable:
        notes.append(f"issued and not understood: {', '.join(sorted(whose.own.unreadable))}")
    return found, candidates, recognised


def _inside(event: Span, listed: Sequence[Collective]) -> bool:
    """Whether an event of the backend may belong to what was listed: parbench lists what its steps issue only."""
    first = min((one.issued_ns for one in listed if one.issued_ns is not None), default=None)
    return first is None or event.start_ns >= first


def _logged(own: Own, whose: Header) -> list[Collective]:
    def moved(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns + whose.base_ns

    found = []
    for row in own.collectives:
        group = own.axes.get(row.group or "", _Group())
        found.append(
            Collective(
                op=row.op,
                number=row.number,
                step=row.step,
                group=row.group,
                members=group.members,
                axis=group.axis,
                peer=row.peer,
                dtype=row.dtype,
                logical_bytes=row.logical_bytes,
                wire_bytes=row.wire_bytes,
                issued_ns=moved(row.issued_ns),
                start_ns=moved(row.start_ns),
                end_ns=moved(row.end_ns),
            )
        )
    return found


def _as_annotated(one: Collective, own: Mapping[int, Span]) -> Collective:
    """Give a collective of parbench's own sockets its times: it begins where its annotation does."""
    span = own.get(one.issued_ns) if one.issued_ns is not None else None
    if span is None or one.end_ns is not None:
        return one
    return msgspec.structs.replace(one, start_ns=span.start_ns, end_ns=span.end_ns, shown_as=span.name)


def _from_calls(issued: Sequence[Event], whose: Header, elements: list[int | None]) -> list[Collective]:
    """Return what a foreign trace over gloo says of its collectives: the outermost calls, with shapes if it has any.

    The elements of each whole buffer are added to `elements`: what their type is, gloo's own event may have to say.
    """
    found: list[Collective] = []
    until: dict[int | str, float] = {}
    group = whose.only_group or _Group()
    for event in sorted(issued, key=lambda one: (one.ts, -one.dur)):
        op = op_of(event.name)
        if op is None or event.ts < until.get(event.tid, 0.0):
            continue
        until[event.tid] = event.ts + event.dur
        args = arguments(event.args)
        dims = args.dims if isinstance(args.dims, list) else []
        types = args.types if isinstance(args.types, list) else []
        # Inputs and outputs come first; of a gather or scatter the larger one is the whole buffer.
        elements.append(max((sum(shapes(one)) for one in dims[:2] if shapes(one)), default=None))
        found.append(
            Collective(
                op=op,
                number=len(found),
                group="0" if whose.only_group else None,
                members=group.members,
                axis=group.axis,
                peer=_peer(op, args.concrete),
                dtype=dtype_name(next((one for one in types if element_bytes(one) is not None), None)),
                issued_ns=whose.ns(event.ts),
            )
        )
    return found


def _sized(one: Collective, elements: int | None, whose: Header) -> Collective:
    each = element_bytes(one.dtype)
    if elements is None or each is None:
        return one
    logical = sent_bytes(one.op, elements * each, len(one.members) or whose.world_size)
    return msgspec.structs.replace(one, logical_bytes=None if logical is None else float(logical))


def _peer(op: str, concrete: object) -> int | None:
    """Return the other rank of a message: the first number among a call's arguments."""
    if op not in ("send", "recv") or not isinstance(concrete, list):
        return None
    numbers = [whole(one) for one in concrete]
    return next((one for one in numbers if one is not None), None)


def _in_steps(collectives: Sequence[Collective], spans: Sequence[Span]) -> list[Collective]:
    """Say of each in which step it was issued, if it was in one."""
    steps = [span for span in spans if span.kind == "step"]
    found = []
    for one in collectives:
        time = (one.start_ns if one.issued_ns is None else one.issued_ns) or 0
        k = bisect_right(steps, time, key=lambda span: span.start_ns) - 1
        found.append(msgspec.structs.replace(one, step=k if k >= 0 and time < steps[k].end_ns else None))
    return found
