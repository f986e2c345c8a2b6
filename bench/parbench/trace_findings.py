"""Findings are what the traces of all ranks come to, as a record keeps it: breakdowns, collectives, who delays whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from parbench.columns import TRAFFIC_TYPES, Column
from parbench.observed_trace import CollectiveKind, Keeping, RankTraced, Traced
from parbench.tracing import clocks
from parbench.tracing.phases import steps as steps_of
from parbench.tracing.spans import Collective, RankTrace
from parbench.tracing.summary import OfRank, summary


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
    said = summary(clocks.aligned(traces))
    sent = {one.rank: _bytes(one.collectives, steps) for one in traces}
    return Traced(
        steps=steps,
        slowest=said.slowest or 0,
        ranks=tuple(_rank(one, sent[one.rank]) for one in said.ranks),
        collectives=tuple(msgspec.convert(msgspec.structs.asdict(row), CollectiveKind) for row in said.communication),
        keeping=tuple(msgspec.convert(msgspec.structs.asdict(one), Keeping) for one in said.stragglers),
        sent=tuple(tuple(row) for row in said.matrix.sent),
        uncertainty_s=None if said.uncertainty_ns is None else said.uncertainty_ns / 1e9,
        files=dict(files),
        shortened=shortened,
    )


def columns_of(traces: Sequence[RankTrace]) -> Mapping[str, Column]:
    """Return one row per collective and rank; times count from the first traced step of any rank."""
    aligned = clocks.aligned(traces).traces
    first_ns = min((span.start_ns for one in aligned for span in steps_of(one)), default=0)
    rows = [_row(trace.rank, one, first_ns) for trace in aligned for one in trace.collectives]
    return {name: [row[name] for row in rows] for name in TRAFFIC_TYPES}


def _rank(one: OfRank, bytes_per_step: dict[str, float] | None) -> RankTraced:
    return RankTraced(
        rank=one.rank,
        coordinate=dict(one.coordinate),
        step_s=one.step_s or 0.0,
        parts=one.breakdown or {},
        unattributed_s=one.unattributed_s or 0.0,
        overlap=one.overlap,
        bytes_per_step=bytes_per_step,
        collectives=one.collectives,
        candidates=one.candidates,
        recognised=one.recognised,
        notes=one.notes,
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
