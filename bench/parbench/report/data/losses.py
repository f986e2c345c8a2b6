"""Frames of losses: how far down each run came, by steps, seconds, bytes sent and joules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parbench.metrics import Cell
from parbench.record import RunRecord
from parbench.report.data.measured import frame_of, measured
from parbench.toloss import curve_of

if TYPE_CHECKING:
    import pandas

# A line of more points looks the same and is larger.
_MOST_POINTS = 150
_COLUMNS = ("group", "label", "strategy", "run", "steps", "seconds", "bytes", "joules", "loss")


def loss_frame(cells: Sequence[Cell], records: Sequence[RunRecord], steps: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row per run and step: the mean loss of 5 steps, and what was taken until then.

    Args:
        cells: of the records.
        records: the runs.
        steps: their samples, as `parbench.load(path, steps=True)` returns them.
    """
    import pandas

    of_run = {record.id: (one, record) for one in measured(cells, records) for record in one.launches}
    parts: list[pandas.DataFrame] = []
    for run, samples in steps.groupby("run", sort=True):
        if run not in of_run:
            continue
        one, record = of_run[str(run)]
        curve = curve_of(samples).reset_index(drop=True)
        curve["steps"] = curve.index + 1.0
        curve = curve[curve["loss"].notna()]
        curve = curve.iloc[:: max(1, len(curve) // _MOST_POINTS)]
        parts.append(
            curve.assign(
                run=record.id,
                bytes=curve["steps"] * _per_step(record, "traffic_bytes_per_step"),
                joules=curve["steps"] * _per_step(record, "energy_j_per_step"),
                **one.facts,
            )
        )
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], _COLUMNS)


def _per_step(record: RunRecord, name: str) -> float:
    metric = record.metrics.get(name)
    return metric.value if metric is not None and metric.value is not None else float("nan")
