"""A breakdown says where the time of a traced step went: parts that sum to it.

At each moment of a step, on the thread that steps:

    a collective is in flight and nothing computes    exposed_comm/<op>/<axis>, shared equally by those in flight;
                                                      before the last member was ready for it: `wait`, or `bubble`
                                                      where a stage of a pipeline waits for its neighbour's message
    the thread waits, another one encodes or decodes  compression
    the thread waits for something unseen             wait
    it is inside a phase                              forward, backward, optimizer, compression, data
    it is inside a call of the communication library  exposed_comm of what was issued last
    anything else                                     other; what no rule covers is counted apart as unattributed
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from parbench.tracing.intervals import Interval, holding, union
from parbench.tracing.matching import Matches, arrival, delivered, matched
from parbench.tracing.phases import InStep, Phase, aside, at, computing, in_steps, is_call, on_device, phases, waits
from parbench.tracing.spans import Collective, RankTrace

NAMES = ("forward", "backward", "wait", "bubble", "compression", "optimizer", "data", "other")
# Their Python belongs to them even where something is in flight that they have not issued themselves.
_OWN_WORK = frozenset({"optimizer", "compression", "data", "slowed"})
_PIPELINES = frozenset({"pp", "pipeline"})
_NS_PER_S = 1e9


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Where a traced step went, a mean over the traced steps.

    Attributes:
        parts: name -> seconds per step; they sum to `step_s`. exposed_comm/<op>/<axis> only where there is some.
        unattributed_s: the share of "other" that no rule covers.
        step_s: a traced step.
        steps: how many were traced.
    """

    parts: dict[str, float]
    unattributed_s: float
    step_s: float
    steps: int


class _InFlight(msgspec.Struct, frozen=True):
    """A collective while it is in flight on this rank."""

    start_ns: int
    end_ns: int
    issued_ns: int
    part: str
    waits_for: str
    arrived_ns: int


def of(trace: RankTrace, others: Iterable[RankTrace] = (), *, matches: Matches | None = None) -> Breakdown | None:
    """Return where the steps of one rank went, or None where it has none.

    Args:
        trace: of the rank.
        others: the traces of all ranks on the same clock, with or without this one; without them nothing is `wait`.
        matches: their collectives, if they are matched already.
    """
    known = matched({one.rank: one for one in (*others, trace)}.values()) if matches is None else matches
    in_flight = sorted(_in_flight(trace, known), key=lambda one: one.start_ns)
    taken = in_steps(trace)
    total: dict[str, float] = dict.fromkeys(NAMES, 0.0)
    unattributed = 0.0
    for step in taken:
        parts, loose = _of_step(step, in_flight)
        unattributed += loose
        for name, duration_ns in parts.items():
            total[name] = total.get(name, 0.0) + duration_ns
    if not taken:
        return None
    per = _NS_PER_S * len(taken)
    return Breakdown(
        parts={name: duration_ns / per for name, duration_ns in total.items()},
        unattributed_s=unattributed / per,
        step_s=sum(end - start for start, end in (step.window for step in taken)) / per,
        steps=len(taken),
    )


def part_of(one: Collective) -> str:
    """Return the part to which exposed communication by a collective belongs."""
    return f"exposed_comm/{one.op}/{one.axis or 'unknown'}"


def _in_flight(trace: RankTrace, matches: Matches) -> Iterable[_InFlight]:
    for key, whole in zip(matches.keys[trace.rank], trace.collectives, strict=True):
        one = delivered(whole, matches.sides[key])
        if one.start_ns is None or one.end_ns is None:
            continue
        issued = one.start_ns if one.issued_ns is None else one.issued_ns
        last = arrival(matches.sides[key], trace.world_size)
        message = one.op in ("send", "recv") and one.axis in _PIPELINES
        yield _InFlight(
            one.start_ns,
            one.end_ns,
            issued,
            part_of(one),
            "bubble" if message else "wait",
            one.start_ns if last is None else last,
        )


def _of_step(one: InStep, in_flight: Sequence[_InFlight]) -> tuple[dict[str, float], float]:
    """Return part -> ns of one step, and how many of `other` no rule covers."""
    window = one.window
    mine = [span for span in one.spans if span.thread == one.step.thread and not span.device]
    of_host = phases(one)
    now = _Now(
        computing=computing(one),
        phases=of_host,
        marks={phase.mark: phase.start_ns for phase in reversed(of_host)},
        kernels=on_device(one, of_host),
        device=one.device,
        calls=union((span.start_ns, span.end_ns) for span in mine if is_call(span)),
        waits=waits(mine),
        aside=aside(one),
        issued=sorted((flight.issued_ns, flight.part) for flight in in_flight),
    )
    flying = [flight for flight in in_flight if flight.start_ns < window[1] and flight.end_ns > window[0]]
    total: dict[str, float] = defaultdict(float)
    unattributed = 0.0
    active: list[_InFlight] = []
    coming = iter(flying)
    following = next(coming, None)
    for start, end in pairwise(_edges(window, now, flying)):
        while following is not None and following.start_ns <= start:
            active.append(following)
            following = next(coming, None)
        active = [flight for flight in active if flight.end_ns > start]
        shares = now.parts(start, active)
        for name in shares:
            total["other" if name in (None, "slowed") else name] += (end - start) / len(shares)
            unattributed += (end - start) / len(shares) if name is None else 0
    return dict(total), unattributed


def _edges(window: Interval, now: _Now, flying: Sequence[_InFlight]) -> list[int]:
    """Return the moments between which nothing changes."""
    times = {*window}
    for start, end in (*now.computing, *now.calls, *now.waits, *now.aside):
        times |= {start, end}
    for phase in (*now.phases, *now.kernels):
        times |= {phase.start_ns, phase.end_ns}
    for one in flying:
        times |= {one.start_ns, one.end_ns, one.arrived_ns}
    return sorted(time for time in times if window[0] <= time <= window[1])


class _Now(msgspec.Struct, frozen=True, kw_only=True):
    """What the thread that steps is about, at every moment of a step."""

    computing: list[Interval]
    phases: list[Phase]
    marks: dict[int, int]  # mark of a phase -> when its first stretch begins
    kernels: list[Phase]
    device: bool
    calls: list[Interval]
    waits: list[Interval]
    aside: list[Interval]
    issued: list[tuple[int, str]]

    def parts(self, time_ns: int, active: Sequence[_InFlight]) -> list[str | None]:
        """Return the parts that share a moment equally; None where no rule covers it."""
        busy = holding(self.computing, time_ns) is not None
        called, waiting = holding(self.calls, time_ns) is not None, holding(self.waits, time_ns) is not None
        phase = at(self.phases, time_ns)
        if busy:
            kernel = at(self.kernels, time_ns)
            return [kernel.kind if kernel else phase.kind if phase else "other"]
        if holding(self.aside, time_ns) is not None and (called or waiting or phase is None):
            return ["compression"]
        if active and not self._goes_on(phase, active, called or waiting):
            return [one.waits_for if time_ns < one.arrived_ns else one.part for one in active]
        if waiting:
            return ["wait"]
        if called and (part := self._issued_before(time_ns)):
            return [part]
        return [phase.kind if phase else None]

    def _goes_on(self, phase: Phase | None, active: Sequence[_InFlight], blocked: bool) -> bool:
        """Whether the thread has work of its own, though no operator runs and something is in flight."""
        # A device computes or does not, whatever its host is about.
        if phase is None or phase.kind not in _OWN_WORK or blocked or self.device:
            return False
        start = self.marks.get(phase.mark, phase.start_ns)
        return not any(one.issued_ns >= start for one in active)

    def _issued_before(self, time_ns: int) -> str | None:
        k = bisect_right(self.issued, time_ns, key=lambda one: one[0]) - 1
        return self.issued[k][1] if k >= 0 else None
