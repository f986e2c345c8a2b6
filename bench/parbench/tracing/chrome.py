"""Reading a trace in Chrome's format: parbench's own, or that of any job that ran under torch.profiler."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import msgspec

from parbench.tracing import gloo, nccl
from parbench.tracing.arguments import arguments, dtype_name, element_bytes, whole
from parbench.tracing.chromefile import Document, Event, load
from parbench.tracing.header import Header, header
from parbench.tracing.issued import as_annotated, from_calls, inside, logged, sized
from parbench.tracing.names import OWN_COLLECTIVE, is_call, is_nccl, kind_of
from parbench.tracing.spans import Collective, RankTrace, Span

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LARGE_BYTES = 500_000_000
# Times beyond a thousand years are none.
_LONGEST_US = 3e16
_HOST = frozenset({"cpu_op", "user_annotation"})


def read(path: Path | str) -> RankTrace:
    """Return what one rank was seen to do.

    Raises:
        UnreadableError: the file cannot be read, is damaged, is no trace, or is of a newer version.
    """
    path = Path(path)
    document = load(path)
    return understood(document, header(document, path))


def understood(document: Document, whose: Header) -> RankTrace:
    """Return what the events of a file mean."""
    spans, notes = [], [*document.notes, *whose.notes]
    if document.size_bytes > LARGE_BYTES:
        size = f"{document.size_bytes / 1e6:.0f} MB unpacked"
        notes.append(f"{size}: viewers may not open it; trace fewer steps, or without stacks and shapes")
    calls: list[nccl.Call] = []
    kernels: list[nccl.Kernel] = []
    issued: list[Event] = []
    launches: dict[int, int] = {}
    late: list[tuple[Event, int | None, int | None]] = []
    for event in document.events:
        if event.ph != "X" or not 0 <= event.dur < _LONGEST_US or not abs(event.ts) < _LONGEST_US:
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
        found = _in_steps([_on_axis(one, whose) for one in seen.collectives], spans)
        candidates, recognised = seen.candidates, seen.recognised
    else:
        elements: list[int | None] = []
        listed = logged(whose.own, whose) if whose.own else _in_steps(from_calls(issued, whose, elements), spans)
        own = {span.start_ns: span for span in spans if span.name.startswith(OWN_COLLECTIVE)}
        listed = [as_annotated(one, own) for one in listed]
        events = [span for span in spans if span.name.startswith("gloo:") and inside(span, listed)]
        found, unmatched = gloo.timed(listed, events)
        found = [sized(one, count, whose) for one, count in zip(found, elements, strict=True)] if elements else found
        annotated = sum(1 for one in listed if one.end_ns is not None)
        candidates, recognised = annotated + len(events), annotated + len(events) - unmatched
        if whose.own is None and whose.only_group is None and whose.world_size > 2 and found:
            notes.append("gloo does not say which group a collective is in: all are taken for collectives of all ranks")
    untimed = sum(1 for one in found if one.end_ns is None)
    if untimed:
        notes.append(f"{untimed} of {len(found)} collectives have no event that says when they ran")
    if whose.own and whose.own.unreadable:
        notes.append(f"issued and not understood: {', '.join(sorted(whose.own.unreadable))}")
    return found, candidates, recognised


def _on_axis(one: Collective, whose: Header) -> Collective:
    """Name the axis of a collective as parbench's own mesh does, where that is known."""
    group = whose.own.axes.get(one.group or "") if whose.own else None
    if group is None:
        return one
    return msgspec.structs.replace(one, axis=group.axis, members=group.members or one.members)


def _in_steps(collectives: Sequence[Collective], spans: Sequence[Span]) -> list[Collective]:
    """Say of each in which step it was issued, if it was in one."""
    steps = [span for span in spans if span.kind == "step"]
    found = []
    for one in collectives:
        time = (one.start_ns if one.issued_ns is None else one.issued_ns) or 0
        k = bisect_right(steps, time, key=lambda span: span.start_ns) - 1
        found.append(msgspec.structs.replace(one, step=k if k >= 0 and time < steps[k].end_ns else None))
    return found
