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

PHASES: frozenset[Kind] = frozenset({"data", "forward", "backward", "optimizer", "compression", "slowed"})
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


class InStep(msgspec.Struct, frozen=True):
    """A traced step and the spans of the rank that overlap with it, in order of their start.

    Attributes:
        step: the step.
        spans: of all threads and streams.
        device: whether the rank computes on a device, in this step or another.
    """

    step: Span
    spans: list[Span]
    device: bool

    @property
    def window(self) -> Interval:
        """The step's time."""
        return self.step.start_ns, self.step.end_ns

    def within(self, intervals: Iterable[Interval]) -> list[Interval]:
        """Return what of some time lies in the step, sorted and disjoint."""
        start, end = self.window
        return union((max(a, start), min(b, end)) for a, b in intervals)


def in_steps(trace: RankTrace) -> list[InStep]:
    """Return the traced steps, each with what lies in it."""
    found = steps(trace)
    inside: list[list[Span]] = [[] for _ in found]
    starts, ends = [one.start_ns for one in found], [one.end_ns for one in found]
    for span in trace.spans:
        # Steps follow one another: a span overlaps with those that end after it begins and begin before it ends.
        for k in range(bisect_right(ends, span.start_ns), bisect_left(starts, span.end_ns)):
            inside[k].append(span)
    device = any(span.device for span in trace.spans)
    return [InStep(step, spans, device) for step, spans in zip(found, inside, strict=True)]


def waits(spans: Iterable[Span]) -> list[Interval]:
    """Return when a thread waits for something: in a wait, and in nothing inside of it."""
    found = _innermost([span for span in spans if span.kind in PHASES or span.kind == "wait"])
    return union((one.start_ns, one.end_ns) for one in found if one.kind == "wait")


def aside(one: InStep) -> list[Interval]:
    """Return when other threads of the rank encode or decode what is exchanged, their waits left out."""
    found: list[Interval] = []
    for name in {span.thread for span in one.spans if span.kind == "compression"} - {one.step.thread}:
        flat = _innermost([s for s in one.spans if s.thread == name and s.kind in ("compression", "wait")])
        found += [(phase.start_ns, phase.end_ns) for phase in flat if phase.kind == "compression"]
    return one.within(found)


def on_device(one: InStep, of_host: Sequence[Phase]) -> list[Phase]:
    """Return kernels that compute, each in the phase in which the host launched it, if that is known; disjoint."""
    found = []
    for span in one.spans:
        launched = span.args.get("launched_ns") if span.device and span.kind == "operator" else None
        phase = at(of_host, launched) if isinstance(launched, int) else None
        # Where it is not known when a kernel was launched, what the host is about meanwhile says most.
        found += [Phase(span.start_ns, span.end_ns, phase.kind)] if phase else []
    return _disjoint(sorted(found, key=lambda phase: phase.start_ns))


def at(found: Sequence[Phase], time_ns: int) -> Phase | None:
    """Return the one of sorted, disjoint phases in which a moment lies, or None."""
    k = bisect_right(found, time_ns, key=lambda one: one.start_ns) - 1
    return found[k] if k >= 0 and time_ns < found[k].end_ns else None


def phases(one: InStep) -> list[Phase]:
    """Return the phases of a step, sorted and disjoint."""
    # With a device autograd has a thread of its own, for which the one that steps waits.
    spans = [s for s in one.spans if (s.thread == one.step.thread or s.kind == "backward") and not s.device]
    flat = _innermost([span for span in spans if span.kind in PHASES or span.kind == "wait"])
    marked = [phase for phase in flat if phase.kind != "wait"]
    covered = [(phase.start_ns, phase.end_ns) for phase in marked]
    backward = min((phase.start_ns for phase in marked if phase.kind == "backward"), default=one.step.end_ns)
    loose = union(
        (span.start_ns, span.end_ns) for span in spans if is_compute(span) and holding(covered, span.start_ns) is None
    )
    recorded = [span.start_ns for span in spans if "sequence" in span.args]
    found = marked + [
        Phase(start, end, "forward" if start < backward or _any_in(recorded, start, end) else "other")
        for start, end in loose
    ]
    return _filled(sorted(found, key=lambda phase: (phase.start_ns, phase.end_ns)))


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


def computing(one: InStep) -> list[Interval]:
    """Return when the rank computes: kernels of its device, or else tensor operators of the thread that steps.

    Operators of autograd's own threads count too; calls of the communication library and waits do not, whatever is
    inside them.
    """
    if one.device:
        return one.within((s.start_ns, s.end_ns) for s in one.spans if s.device and s.kind == "operator")
    found = []
    for name in {one.step.thread, *(span.thread for span in one.spans if span.kind == "backward")}:
        mine = [span for span in one.spans if span.thread == name]
        blocked = union([*((s.start_ns, s.end_ns) for s in mine if is_call(s)), *waits(mine)])
        found += difference(union((s.start_ns, s.end_ns) for s in mine if is_compute(s)), blocked)
    return one.within(found)
