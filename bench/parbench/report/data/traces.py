"""Frames of traces: what ranks did when, and how much they sent to one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parbench.report.data.measured import Row, frame_of
from parbench.tracing.spans import RankTrace

if TYPE_CHECKING:
    import pandas

_DRAWN = frozenset({"data", "forward", "backward", "optimizer", "compression", "wait", "collective", "other"})


def timeline_frame(traces: Sequence[RankTrace], *, steps: int = 1) -> pandas.DataFrame:
    """Return a row per span of the first traced steps.

    Args:
        traces: of all ranks, on one clock.
        steps: how many steps.
    """
    rows = [row for trace in traces for row in _rows(trace, _window(trace, steps))]
    return frame_of(rows, ("rank", "kind", "lane", "start_s", "end_s"))


def matrix_frame(sent: Sequence[Sequence[float]], *, steps: int = 1) -> pandas.DataFrame:
    """Return a row per pair of ranks: bytes of one step.

    Args:
        sent: bytes[from][to] of all traced steps.
        steps: how many those were.
    """
    rows: list[Row] = [
        {"source": source, "destination": destination, "bytes": size / steps}
        for source, line in enumerate(sent)
        for destination, size in enumerate(line)
    ]
    return frame_of(rows, ("source", "destination", "bytes"))


def _window(trace: RankTrace, steps: int) -> tuple[float, float]:
    marks = sorted((one for one in trace.spans if one.kind == "step"), key=lambda one: one.start_ns)[:steps]
    return (marks[0].start_ns, marks[-1].end_ns) if marks else (float("-inf"), float("inf"))


def _rows(trace: RankTrace, window: tuple[float, float]) -> Iterator[Row]:
    inside = [one for one in trace.spans if one.kind in _DRAWN and window[0] <= one.start_ns < window[1]]
    for one in inside:
        yield _row(trace.rank, one.kind, one.start_ns, one.end_ns)
    if any(one.kind == "collective" for one in inside):
        return
    for each in trace.collectives:  # where the backend showed no spans of its own
        if each.start_ns is not None and each.end_ns is not None and window[0] <= each.start_ns < window[1]:
            yield _row(trace.rank, "collective", each.start_ns, each.end_ns)


def _row(rank: int, kind: str, start_ns: int, end_ns: int) -> Row:
    lane = "communication" if kind == "collective" else "compute"
    return {"rank": rank, "kind": kind, "lane": lane, "start_s": start_ns * 1e-9, "end_s": end_ns * 1e-9}
