"""Findings are what the traces of all ranks come to, as a record keeps it: breakdowns, collectives, who delays whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from parbench.columns import TRAFFIC_TYPES, Column
from parbench.observed_trace import CollectiveKind, Keeping, RankTraced, Traced
from parbench.tracing import bandwidth, breakdown, clocks, matrix, overlap, skew
from parbench.tracing.phases import steps as steps_of
from parbench.tracing.spans import Collective, RankTrace


def found_in(
    traces: Sequence[RankTrace], *, steps: int, files: Mapping[str, int], shortened: str | None = None
) -> Traced:
    """Return what traces come to.

    Args:
        traces: of all ranks that took part.
        steps: that were traced.
        files: in which they lie -> their bytes.
        shortened: why they are fewer than were asked for.
    """
    aligned = clocks.aligned(traces)
    ranks = tuple(_rank(one, aligned.traces, steps) for one in aligned.traces)
    uncertainty_ns = aligned.uncertainty_ns
    return Traced(
        steps=steps,
        slowest=max(ranks, key=lambda one: (one.step_s, -one.rank)).rank if ranks else 0,
        ranks=ranks,
        collectives=tuple(
            msgspec.convert(msgspec.structs.asdict(row), CollectiveKind) for row in bandwidth.rows(aligned.traces)
        ),
        keeping=tuple(
            msgspec.convert(msgspec.structs.asdict(one), Keeping)
            for one in skew.stragglers(skew.waiting(aligned.traces))
        ),
        sent=tuple(tuple(row) for row in matrix.sent(aligned.traces).sent),
        uncertainty_s=None if uncertainty_ns is None else uncertainty_ns / 1e9,
        files=dict(files),
        shortened=shortened,
    )


def columns_of(traces: Sequence[RankTrace]) -> Mapping[str, Column]:
    """Return one row per collective and rank; times count from the first traced step of any rank."""
    aligned = clocks.aligned(traces).traces
    first_ns = min((span.start_ns for one in aligned for span in steps_of(one)), default=0)
    rows = [_row(trace.rank, one, first_ns) for trace in aligned for one in trace.collectives]
    return {name: [row[name] for row in rows] for name in TRAFFIC_TYPES}


def _rank(trace: RankTrace, every: Sequence[RankTrace], steps: int) -> RankTraced:
    found = breakdown.of(trace, every)
    return RankTraced(
        rank=trace.rank,
        coordinate=dict(trace.coordinate),
        step_s=found.step_s if found else 0.0,
        parts=found.parts if found else {},
        unattributed_s=found.unattributed_s if found else 0.0,
        overlap=overlap.fraction(trace, every),
        bytes_per_step=_bytes(trace.collectives, steps),
        collectives=len(trace.collectives),
        candidates=trace.candidates,
        recognised=trace.recognised,
        notes=trace.notes,
    )


def _bytes(collectives: Sequence[Collective], steps: int) -> dict[str, float] | None:
    total: dict[str, float] = {}
    for one in collectives:
        if one.logical_bytes is None:
            return None
        if one.logical_bytes and one.step is not None:
            total[one.op] = total.get(one.op, 0.0) + one.logical_bytes
    return {op: size / steps for op, size in total.items()}


def _row(rank: int, one: Collective, first_ns: int) -> dict[str, int | float | str | None]:
    times = {"issued_s": one.issued_ns, "start_s": one.start_ns, "end_s": one.end_ns}
    return {
        "rank": rank,
        "step": one.step,
        "number": one.number,
        "op": one.op,
        "axis": one.axis,
        "group": one.group,
        "ranks": len(one.members) or None,
        "peer": one.peer,
        "dtype": one.dtype,
        "logical_bytes": one.logical_bytes,
        "wire_bytes": one.wire_bytes,
        "shown_as": one.shown_as,
        **{name: None if at is None else (at - first_ns) / 1e9 for name, at in times.items()},
    }
