"""What a record says of traced steps: where the slowest rank's went, how much communication shows, and at what rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from parbench.cases import Measured
from parbench.observed_trace import RankTraced, Traced
from parbench.record import Better, Metric, Warned
from parbench.trace_gates import SUSPECT, trace_warnings

_UNITS: Final[Mapping[str, tuple[str, Better]]] = {
    "traced_step_time_s": ("s", "lower"),
    "traced_over_timed": ("ratio", "lower"),
    "exposed_comm_fraction": ("fraction", "lower"),
    "overlap_fraction": ("fraction", "higher"),
    "bubble_fraction": ("fraction", "lower"),
    "bus_bandwidth_bytes_per_s": ("bytes/s", "higher"),
}
_ALONE: Final = "nothing is communicated"


def breakdown_of(m: Measured) -> dict[str, float] | None:
    """Return where a step of the slowest rank went, in seconds; None where there is no trace."""
    traced = m.traced
    if traced is None or traced.reason is not None or not traced.ranks:
        return None
    return dict(slowest(traced).parts) or None


def slowest(traced: Traced) -> RankTraced:
    """Return the rank whose traced step takes longest."""
    return next(one for one in traced.ranks if one.rank == traced.slowest)


def trace_metrics(m: Measured, timed: Metric, warnings: Sequence[Warned]) -> dict[str, Metric]:
    """Return the metrics of traced steps.

    Args:
        m: what was measured.
        timed: the time of a step that was not traced.
        warnings: of `trace_cautions`; some make numbers suspect.
    """
    traced = m.traced or Traced(reason="the run ended before steps were traced")
    if traced.reason is not None or not traced.ranks:
        return _unavailable(traced.reason or "no rank was traced")
    one = slowest(traced)
    said = f"{traced.steps} steps under torch's profiler after the timed ones, rank {one.rank}, the slowest of them"
    found = {
        "traced_step_time_s": _metric("traced_step_time_s", one.step_s, traced.steps, said),
        "traced_over_timed": _over_timed(one, timed),
        "exposed_comm_fraction": _exposed(one, said),
        "overlap_fraction": _overlap(one, said),
        "bubble_fraction": _bubble(traced),
        "bus_bandwidth_bytes_per_s": _bandwidth(traced),
    }
    damning = {name: one for one in warnings for name in SUSPECT.get(one.code, ())}
    return {
        name: metric.suspected(f"{damning[name].code}: {damning[name].message}")
        if name in damning and metric.value is not None
        else metric
        for name, metric in found.items()
    }


def trace_cautions(m: Measured) -> list[Warned]:
    """Return what a reader must know of the traced steps."""
    if m.traced is None or not m.case.spec.trace_steps:
        return []
    peak = None if m.links is None else max(m.links.rate_bits_per_s) / 8
    return trace_warnings(m.traced, [one.sent for one in m.inspected], peak)


def _unavailable(reason: str) -> dict[str, Metric]:
    return {name: Metric.unavailable(unit, better, reason) for name, (unit, better) in _UNITS.items()}


def _metric(name: str, value: float, n: int, source: str) -> Metric:
    unit, better = _UNITS[name]
    return Metric(value=value, unit=unit, better=better, n=n, source=source)


def _lacking(name: str, reason: str) -> Metric:
    unit, better = _UNITS[name]
    return Metric.unavailable(unit, better, reason)


def _over_timed(one: RankTraced, timed: Metric) -> Metric:
    if not timed.value:
        return _lacking("traced_over_timed", "no step was timed")
    return _metric("traced_over_timed", one.step_s / timed.value, 1, "what tracing costs: traced / timed step time")


def _exposed(one: RankTraced, said: str) -> Metric:
    if not one.step_s:
        return _lacking("exposed_comm_fraction", "no step was traced")
    exposed_s = math.fsum(seconds for name, seconds in one.parts.items() if name.startswith("exposed_comm/"))
    source = f"in flight while nothing computes, waiting for other ranks left out; {said}"
    return _metric("exposed_comm_fraction", exposed_s / one.step_s, 1, source)


def _overlap(one: RankTraced, said: str) -> Metric:
    if one.overlap is None:
        return _lacking("overlap_fraction", _ALONE)
    return _metric("overlap_fraction", one.overlap, 1, f"computing while in flight / in flight; {said}")


def _bubble(traced: Traced) -> Metric:
    stages = {one.coordinate["pp"] for one in traced.ranks if "pp" in one.coordinate}
    if len(stages) < 2:
        return _lacking("bubble_fraction", "there is no pipeline")
    shares = [one.parts.get("bubble", 0.0) / one.step_s for one in traced.ranks if one.step_s]
    source = "of a traced step, waiting for what a neighbouring stage has not sent yet; mean over ranks"
    return _metric("bubble_fraction", math.fsum(shares) / len(shares), len(shares), source)


def _bandwidth(traced: Traced) -> Metric:
    name = "bus_bandwidth_bytes_per_s"
    timed = [one for one in traced.collectives if one.busbw_bytes_per_s is not None]
    if not timed:
        return _lacking(name, "no collective was timed on all its ranks" if traced.collectives else _ALONE)
    one = max(timed, key=lambda kind: kind.logical_bytes or 0.0)
    what = f"{one.op} of {one.buffer_bytes:.0f} bytes over {one.ranks} ranks of axis {one.axis or 'unknown'}"
    source = f"{what}, median of {one.timed}, waiting for others left out; the kind of collective that sends most"
    return _metric(name, one.busbw_bytes_per_s or 0.0, one.timed, source)
