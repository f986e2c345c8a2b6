"""A phase is what the thread that steps is about at a moment: data, forward, backward, optimizer, compression, other.

What a trace marks counts as it says. Operators that lie in no mark are put in order instead:

    | forward: operators before the first backward |  backward  | other | optimizer |
                                                               ^ after it: forward only where autograd recorded them
                                                                 (the next micro-batch of a pipeline)

Time between two marks of one phase, in which Python looks for the next operator, belongs to that phase.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from parbench.tracing.intervals import Interval, difference, holding, union
from parbench.tracing.spans import Kind, RankTrace, Span

PHASES: frozenset[Kind] = frozenset({"data", "forward", "backward", "optimizer", "compression"})
# Operators of these namespaces hold others, or are calls of the communication library: they compute nothing themselves.
_NOT_COMPUTE = ("autograd::", "torch::", "c10d::", "_c10d_functional::", "record_param_comms")
_CALLS = ("c10d::", "_c10d_functional::", "record_param_comms")


class Phase(msgspec.Struct, frozen=True):
    """A stretch of one phase on the thread that steps; stretches of one span have one `mark`, -1 where it is none."""

    start_ns: int
    end_ns: int
    kind: str
    mark: int = -1


def is_call(span: Span) -> bool:
    """Whether a span is a call of the communication library, in which the thread neither computes nor goes on."""
    return span.kind == "operator" and span.name.startswith(_CALLS)


def is_compute(span: Span) -> bool:
    """Whether a span on a CPU computes: a tensor operator itself, not what encloses some."""
    return span.kind == "operator" and "::" in span.name and not span.name.startswith(_NOT_COMPUTE)


def steps(trace: RankTrace) -> list[Span]:
    """Return the traced steps in order; where none is marked, all of the trace is one."""
    marked = [span for span in trace.spans if span.kind == "step" and not span.device]
    if marked or not trace.spans:
        return marked
    busiest = next((s.thread for s in trace.spans if s.kind in PHASES or is_compute(s)), trace.spans[0].thread)
    first, last = min(s.start_ns for s in trace.spans), max(s.end_ns for s in trace.spans)
    return [Span(name="whole trace", kind="step", start_ns=first, end_ns=last, thread=busiest)]


def waits(spans: Iterable[Span]) -> list[Interval]:
    """Return when a thread waits for something: in a wait, and in nothing inside of it."""
    found = _innermost([span for span in spans if span.kind in PHASES or span.kind == "wait"])
    return union((one.start_ns, one.end_ns) for one in found if one.kind == "wait")


def aside(trace: RankTrace, thread: str, window: Interval) -> list[Interval]:
    """Return when other threads of the rank encode or decode what is exchanged, their waits left out."""
    start, end = window
    others = [one for one in trace.spans if one.thread != thread and one.start_ns < end and one.end_ns > start]
    found: list[Interval] = []
    for name in {one.thread for one in others if one.kind == "compression"}:
        mine = [one for one in others if one.thread == name]
        flat = _innermost([one for one in mine if one.kind in ("compression", "wait")])
        found += [(one.start_ns, one.end_ns) for one in flat if one.kind == "compression"]
    return union((max(a, start), min(b, end)) for a, b in found)


def on_device(trace: RankTrace, window: Interval, of_host: Sequence[Phase]) -> list[Phase]:
    """Return kernels that compute, each in the phase in which the host launched it, if that is known; disjoint."""
    start, end = window
    found = []
    for one in trace.spans:
        if one.device and one.kind == "operator" and one.start_ns < end and one.end_ns > start:
            launched = one.args.get("launched_ns")
            phase = at(of_host, launched) if isinstance(launched, int) else None
            # Where it is not known when a kernel was launched, what the host is about meanwhile says most.
            found += [Phase(one.start_ns, one.end_ns, phase.kind)] if phase else []
    return _disjoint(sorted(found, key=lambda one: one.start_ns))


def at(found: Sequence[Phase], time_ns: int) -> Phase | None:
    """Return the one of sorted, disjoint phases in which a moment lies, or None."""
    k = bisect_right(found, time_ns, key=lambda one: one.start_ns) - 1
    return found[k] if k >= 0 and time_ns < found[k].end_ns else None


def phases(spans: Sequence[Span], step: Span) -> list[Phase]:
    """Return the phases of a step, sorted and disjoint.

    Args:
        spans: of the thread that steps, and backward ones of all threads, in the step, in order of their start.
        step: the step.
    """
    flat = _innermost([span for span in spans if span.kind in PHASES or span.kind == "wait"])
    marked = [one for one in flat if one.kind != "wait"]
    covered = [(one.start_ns, one.end_ns) for one in marked]
    backward = min((one.start_ns for one in marked if one.kind == "backward"), default=step.end_ns)
    loose = union(
        (span.start_ns, span.end_ns) for span in spans if is_compute(span) and holding(covered, span.start_ns) is None
    )
    recorded = [span.start_ns for span in spans if "sequence" in span.args]
    found = marked + [
        Phase(start, end, "forward" if start < backward or _any_in(recorded, start, end) else "other")
        for start, end in loose
    ]
    return _filled(sorted(found, key=lambda one: (one.start_ns, one.end_ns)))


def _any_in(times: Sequence[int], start: int, end: int) -> bool:
    k = bisect_left(times, start)
    return k < len(times) and times[k] < end


def _innermost(marks: Iterable[Span]) -> list[Phase]:
    """Flatten nested marks: each moment belongs to the innermost one."""
    found: list[Phase] = []
    open_: list[tuple[Span, int]] = []
    now = 0

    def until(end_ns: int) -> None:
        nonlocal now
        if open_ and end_ns > now:
            span, number = open_[-1]
            found.append(Phase(now, end_ns, span.kind, number))
        now = max(now, end_ns)

    for number, span in enumerate(sorted(marks, key=lambda one: (one.start_ns, -one.end_ns))):
        while open_ and open_[-1][0].end_ns <= span.start_ns:
            until(open_[-1][0].end_ns)
            open_.pop()
        until(span.start_ns)
        now = span.start_ns
        # What crosses its enclosing mark, as no thread can, ends with it.
        end = min([span.end_ns, *(outer.end_ns for outer, _ in open_[-1:])])
        open_.append((msgspec.structs.replace(span, end_ns=end), number))
    while open_:
        until(open_[-1][0].end_ns)
        open_.pop()
    return found


def _filled(marks: Sequence[Phase]) -> list[Phase]:
    """Give time between two neighbours of one phase to that phase."""
    found = _disjoint(marks)
    gaps = [
        Phase(a.end_ns, b.start_ns, a.kind, a.mark)
        for a, b in pairwise(found)
        if a.kind == b.kind and a.end_ns < b.start_ns
    ]
    return sorted([*found, *gaps], key=lambda one: one.start_ns)


def _disjoint(marks: Sequence[Phase]) -> list[Phase]:
    """Let overlaps belong to what began first."""
    found: list[Phase] = []
    end: int | None = None
    for one in marks:
        start = one.start_ns if end is None else max(one.start_ns, end)
        if start < one.end_ns:
            found.append(Phase(start, one.end_ns, one.kind, one.mark))
            end = one.end_ns
    return found


def computing(trace: RankTrace, thread: str, window: Interval) -> list[Interval]:
    """Return when the rank computes: kernels of its device, or else tensor operators of the thread that steps.

    Operators of autograd's own threads count too; calls of the communication library and waits do not, whatever is
    inside them.
    """
    start, end = window
    inside = [one for one in trace.spans if one.start_ns < end and one.end_ns > start]
    kernels = [one for one in inside if one.device and one.kind == "operator"]
    if kernels or any(one.device for one in trace.spans):
        return union((max(one.start_ns, start), min(one.end_ns, end)) for one in kernels)
    autograd = {one.thread for one in inside if one.kind == "backward"}
    found = []
    for name in {thread, *autograd}:
        mine = [one for one in inside if one.thread == name]
        blocked = union([*((one.start_ns, one.end_ns) for one in mine if is_call(one)), *waits(mine)])
        found += difference(union((one.start_ns, one.end_ns) for one in mine if is_compute(one)), blocked)
    return union((max(a, start), min(b, end)) for a, b in found)
