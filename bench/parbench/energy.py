"""Energy of a window, from a counter's differences or from polled power, with what makes either of them doubtful.

    power                 window                    counters are read, and power is interpolated,
P |       ____________|__________|____              at both edges; what lies outside is not counted
  |  ____/            t0         t1
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

# Energy of a window shorter than this many changes of the meter's value is an estimate.
PERIODS = 10
# Counter and integral that differ by more contradict each other.
DISAGREE = 0.15
# Without readings for more of the window than this, there is no energy.
_MISSED = 0.1
# Readings further apart than this many typical distances, and than a board's power takes to be refreshed, have a hole
# between them.
_HOLE, _REFRESH_S = 4.0, 0.1

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a meter.

    Attributes:
        at_s: when, on the clock of the window.
        power_w: None where it could not be read.
        energy_j: since some time in the past; None where it could not be read.
    """

    at_s: float
    power_w: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of a window.

    Attributes:
        energy_j: None where `reason` says why.
        source: "counter" or "integral".
        counter_j: by the counter, None where it cannot be used.
        integral_j: by polled power, None where it cannot be used.
        missed: fraction of the window that the source did not cover.
        period_s: how often the source's value changes; None where it never did.
        estimated: why the number is not exact.
        reason: why there is no number.
    """

    energy_j: float | None = None
    source: str = ""
    counter_j: float | None = None
    integral_j: float | None = None
    missed: float = 0.0
    period_s: float | None = None
    estimated: str | None = None
    reason: str | None = None


def energy_of(samples: Sequence[Sample], start_s: float, end_s: float, *, averaged_s: float = 0.0) -> Energy:
    """Return the energy between two times: by the counter where there is one, else by the integral of power.

    Args:
        samples: in order of time; those outside the window serve the interpolation at its edges.
        start_s: when it begins, on the samples' clock.
        end_s: when it ends.
        averaged_s: over how long each power is an average.
    """
    counts = [(one.at_s, one.energy_j) for one in samples if one.energy_j is not None]
    powers = [(one.at_s, one.power_w) for one in samples if one.power_w is not None]
    counted, why = _counted(counts, start_s, end_s)
    missed_power = _missed(powers, start_s, end_s)
    summed = _integral(powers, start_s, end_s) if powers and missed_power <= _MISSED else None
    if counted is None and summed is None:
        lacking = f"power could not be read in {missed_power:.0%} of the window" if powers else "power cannot be read"
        return Energy(reason=f"{why}, and {lacking}", missed=missed_power)
    source, points = ("counter", counts) if counted is not None else ("integral", powers)
    period_s = max(_period(points, start_s, end_s) or 0.0, averaged_s if source == "integral" else 0.0) or None
    return Energy(
        energy_j=summed if counted is None else counted,
        source=source,
        counter_j=counted,
        integral_j=summed,
        missed=_missed(points, start_s, end_s),
        period_s=period_s,
        estimated=_doubt(period_s, end_s - start_s, source),
    )


def disagreement(counter_j: float | None, integral_j: float | None) -> float | None:
    """Return by how much the two differ, relative to the larger; None where there are not both."""
    if counter_j is None or integral_j is None:
        return None
    larger = max(abs(counter_j), abs(integral_j))
    return abs(counter_j - integral_j) / larger if larger else 0.0


def _doubt(period_s: float | None, window_s: float, source: str) -> str | None:
    if period_s is None:
        return f"the {source}'s value never changed within the window"
    if window_s < PERIODS * period_s:
        return f"the window of {window_s:.3g} s is shorter than {PERIODS} periods of {period_s:.3g} s"
    return None


def _counted(counts: Points, start_s: float, end_s: float) -> tuple[float | None, str]:
    """Return the difference of a counter between two times; or None and why it cannot be used."""
    if not counts:
        return None, "there is no energy counter"
    if any(b < a for (_, a), (_, b) in pairwise(counts)):
        return None, "the energy counter went backwards"
    # What happens between two readings inside the window, the counter has counted.
    if (missed := _unsure(counts, start_s) + _unsure(counts, end_s)) > _MISSED * (end_s - start_s):
        how_long = f"for {missed:.2g} s " if math.isfinite(missed) else ""
        return None, f"the energy counter could not be read {how_long}at the edges of the window"
    knots = _knots(counts)
    return _at(knots, end_s) - _at(knots, start_s), ""


def _knots(counts: Points) -> Points:
    """Return where a counter changed: between two changes it stands still, though energy flows.

    It changed somewhere between the last look at the old value and the first at the new one: halfway, as far as known.
    """
    kept = [counts[0], *(((a[0] + b[0]) / 2, b[1]) for a, b in pairwise(counts) if b[1] != a[1])]
    return kept if kept[-1][0] == counts[-1][0] or len(kept) > 1 else [*kept, counts[-1]]


def _integral(powers: Points, start_s: float, end_s: float) -> float:
    """Return the area under power by the trapezoid rule, cut at both edges."""
    inside = [(t, p) for t, p in powers if start_s < t < end_s]
    line = [(start_s, _held(powers, start_s)), *inside, (end_s, _held(powers, end_s))]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(line))


def _held(points: Points, at_s: float) -> float:
    """Interpolate; before the first point and after the last, those hold."""
    return _at(points, min(max(at_s, points[0][0]), points[-1][0]))


def _at(points: Points, at_s: float) -> float:
    """Interpolate linearly; outside the points, go on as the nearest two do."""
    if len(points) == 1:
        return points[0][1]
    k = min(max(bisect.bisect_left(points, (at_s,)), 1), len(points) - 1)
    (t0, y0), (t1, y1) = points[k - 1], points[k]
    return y0 + (y1 - y0) * (at_s - t0) / (t1 - t0) if t1 > t0 else y1


def _missed(points: Points, start_s: float, end_s: float) -> float:
    """Return the fraction of a window without readings: holes between them, and what they do not reach."""
    if end_s <= start_s or len(points) < 2:
        return 1.0
    times = [t for t, _ in points]
    hole_s = max(_REFRESH_S, _HOLE * median(b - a for a, b in pairwise(times)))
    lost = max(0.0, times[0] - start_s) + max(0.0, end_s - times[-1])
    for a, b in pairwise(times):
        if b - a > hole_s:
            lost += max(0.0, min(b, end_s) - max(a, start_s))
    return min(1.0, lost / (end_s - start_s))


def _unsure(points: Points, at_s: float) -> float:
    """Return how far apart the readings around a time are; without one on each side, for ever."""
    before = [t for t, _ in points if t <= at_s]
    after = [t for t, _ in points if t >= at_s]
    return after[0] - before[-1] if before and after else math.inf


def _period(points: Points, start_s: float, end_s: float) -> float | None:
    """Return the typical time between two changes of the value within a window."""
    changes = [b[0] for a, b in pairwise(points) if b[1] != a[1] and start_s <= b[0] <= end_s]
    return median(b - a for a, b in pairwise(changes)) if len(changes) > 1 else None
