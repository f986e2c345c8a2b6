"""Frames of histories: a metric run by run, and the level it is at between its change points."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from parbench.changepoints import Changes
from parbench.history import History
from parbench.report.data.measured import Row, frame_of
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas

_FEWEST = 3


def history_frame(found: History, changes: Changes | None, *, metric: str = "step_time_s") -> pandas.DataFrame:
    """Return a row per run and cell of one metric.

    Args:
        found: runs of one machine.
        changes: its change points; None where nobody looked, which leaves one level.
        metric: which.
    """
    number = {run: k for k, run in enumerate(found.runs, start=1)}
    commits = dict(zip(found.runs, found.commits, strict=False))
    rows: list[Row] = []
    for cell in found.cells.values():
        series = cell.series.get(metric)
        if series is None or len(series.values) < _FEWEST:
            continue
        starts = {
            one.after for one in (changes.points if changes else ()) if (one.cell, one.metric) == (cell.name, metric)
        }
        levels: list[list[float]] = []
        for run, value in zip(series.runs, series.values, strict=True):
            if not levels or run in starts:
                levels.append([])
            levels[-1].append(value)
        level = [median(part) for part in levels for _ in part]
        for run, value, at in zip(series.runs, series.values, level, strict=True):
            commit = commits.get(run)
            rows.append(
                {
                    "series": f"{visible(cell.name, 60)}: {metric}",
                    "strategy": visible(cell.spec.strategy, 40) if cell.spec else visible(cell.name, 60),
                    "run": number[run],
                    "value": value,
                    "unit": series.unit,
                    "level": at,
                    "changed": run in starts,
                    "commit": None if commit is None else commit[:10],
                    "n": len(series.values),
                }
            )
    return frame_of(rows, ("series", "strategy", "run", "value", "unit", "level", "changed", "commit"))
