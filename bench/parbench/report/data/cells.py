"""Frames of cells: their rounds, rates, trade-offs, breakdowns, and what closed forms said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parbench.gates import usable
from parbench.metrics import Cell
from parbench.record import Metric, RunRecord
from parbench.report.data.measured import MeasuredCell, Row, frame_of, measured

if TYPE_CHECKING:
    import pandas

_STATES = ("parameters", "gradients", "optimizer")


def rounds_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per measured round: `label`, `strategy`, `seconds` of a step, and its cell's median and interval."""
    rows = [
        {**one.facts, "run": record.id, "seconds": each.wall_s / each.steps, **_interval(time), "quality": time.quality}
        for one in measured(cells, records)
        if (time := one.metric("step_time_s")) is not None
        for record in one.launches
        for each in usable(record.rounds)
    ]
    return frame_of(rows, ("group", "label", "strategy", "seconds", "value", "ci_low", "ci_high"))


def throughput_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per cell: tokens/s where the workload counts those, else samples/s."""
    rows = [
        {**one.facts, **_interval(rate), "unit": rate.unit, "quality": rate.quality, "reason": rate.reason}
        for one in measured(cells, records)
        if (rate := one.metric("tokens_per_s") or one.metric("samples_per_s")) is not None
    ]
    return frame_of(rows, ("group", "label", "strategy", "value", "ci_low", "ci_high", "unit", "quality", "n"))


def trade_off_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per cell that has a step time and memory or energy."""
    names = ("step_time_s", "peak_memory_bytes", "energy_j_per_step")
    rows: list[Row] = []
    for one in measured(cells, records):
        values = {name: _value(one.metric(name)) for name in names}
        if values["step_time_s"] is not None and (values[names[1]] is not None or values[names[2]] is not None):
            doubtful = [found.quality for name in names if (found := one.metric(name)) and found.quality != "measured"]
            quality = "suspect" if "suspect" in doubtful else next(iter(doubtful), "measured")
            rows.append({**one.facts, **values, "quality": quality})
    frame = frame_of(rows, ("group", "label", "strategy", *names, "quality"))
    frame = frame.astype(dict.fromkeys(names, "float64"))
    # One point is no trade-off.
    return frame[frame.groupby("group")["label"].transform("size") > 1] if len(frame) else frame


def breakdown_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per cell and part of its traced step."""
    rows: list[Row] = []
    for one in measured(cells, records):
        known = [record.breakdown for record in one.launches if record.breakdown]
        if known:
            # Of the launch in the middle, whose parts are those of one step: medians of parts would not sum to it.
            middle = sorted(known, key=lambda parts: sum(parts.values()))[(len(known) - 1) // 2]
            rows += [{**one.facts, "part": part, "seconds": s, "n": len(known)} for part, s in middle.items()]
    return frame_of(rows, ("group", "label", "strategy", "part", "seconds", "n"))


def prediction_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per cell and quantity that its strategy has a closed form of, beside what was counted."""
    rows = [
        {**one.facts, "what": what, "predicted": float(said), "measured": float(seen), "unit": "bytes"}
        for one in measured(cells, records)
        for what, said, seen in _predictions(one)
    ]
    return frame_of(rows, ("group", "label", "strategy", "what", "predicted", "measured", "unit"))


def _predictions(one: MeasuredCell) -> list[tuple[str, float, float]]:
    last = one.launches[-1]
    found = []
    if last.traffic is not None and last.traffic.closed_form is not None:
        found.append(("sent in a step", sum(last.traffic.closed_form.values()), sum(last.traffic.sent.values())))
    if last.held is not None and last.held.closed_form is not None:
        said, held = last.held.closed_form, last.held.held
        shared = held.keys() & said.keys()
        found.append(("kept between steps", sum(said[k] for k in shared), sum(held[k] for k in shared)))
    use = last.memory
    if use is not None and use.predicted_bytes is not None and use.parts:
        states = sum(use.parts.get(name, 0) for name in _STATES)
        found.append(("states at the peak of memory", use.predicted_bytes, states))
    return found


def _interval(metric: Metric) -> Row:
    return {"value": metric.value, "ci_low": metric.ci_low, "ci_high": metric.ci_high, "n": metric.n}


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else metric.value
