"""An Exported run is what other tools take of a run: settings, final numbers, and series by step."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from parbench.frames import samples_frame
from parbench.naming import safe_name
from parbench.store import STEPS, Problem, Run

if TYPE_CHECKING:
    import pandas

Setting = str | int | float | bool
# Of a number that is given on bare, that it was not measured is a setting.
_UNSURE = ("estimated", "paced", "simulated")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One run for another tool.

    Attributes:
        name: a file name that no other run has.
        title: the run in words.
        status: how it ended.
        started_s: seconds since 1970; a label, no clock to measure by.
        settings: what was asked, where it ran and what was chosen, flat.
        metrics: name -> value; those that were measured and are not suspect.
        left_out: name -> why a metric is not among them.
        points: (step, seconds so far, seconds of the step, mean loss or None) of every timed step, in order; what the
            end of a round completed is in the seconds so far.
    """

    name: str
    title: str
    status: str
    started_s: float
    settings: dict[str, Setting]
    metrics: dict[str, float]
    left_out: dict[str, str]
    points: tuple[tuple[int, float, float, float | None], ...]


def exported(runs: Sequence[Run], problems: list[Problem]) -> Iterator[Exported]:
    """Yield the runs, one after the other: their samples are read when it is their turn.

    Args:
        runs: to export.
        problems: samples that cannot be read are added; their runs have no points.
    """
    for run in runs:
        record = run.record
        found = record.metrics.items()
        bad = {name: one.reason or one.quality for name, one in found if one.value is None or one.quality == "suspect"}
        spec = record.spec
        yield Exported(
            name=safe_name(record.id),
            title=f"{spec.strategy} on {spec.workload}/{spec.size}, {spec.world_size} ranks",
            status=record.status,
            started_s=_seconds(record.started_at),
            settings=_settings(run),
            metrics={name: one.value for name, one in found if one.value is not None and name not in bad},
            left_out=bad,
            points=tuple(_points(run, problems)),
        )


def _settings(run: Run) -> dict[str, Setting]:
    record = run.record
    spec = {name: getattr(record.spec, name) for name in record.spec.__struct_fields__}
    chosen = {name: one.value for name, one in record.chosen.items()}
    facts = {f"environment.{name}": value for name, value in record.environment.facts.items()}
    quality = {f"quality.{name}": one.quality for name, one in record.metrics.items() if one.quality in _UNSURE}
    others = {"suite": record.suite, "status": record.status, "machine": record.environment.fingerprint}
    found = {**spec, **chosen, **facts, **quality, **others}
    return {
        name: value if isinstance(value, str | int | float | bool) else " ".join(map(str, value))
        for name, value in found.items()
        if value is not None and value != ()
    }


def _points(run: Run, problems: list[Problem]) -> Iterator[tuple[int, float, float, float | None]]:
    if not (run.folder / STEPS).is_file():
        return
    steps: pandas.DataFrame = samples_frame([run], problems)
    steps = steps[steps["phase"] == "timed"]
    drained = {one.first_step + one.steps - 1: one.drain_s for one in run.record.rounds}
    # A step is over when its slowest rank is.
    table = steps.groupby("step").agg(seconds=("seconds", "max"), loss=("loss", "mean")).sort_index()
    passed = 0.0
    for step, seconds, loss in zip(table.index, table["seconds"], table["loss"], strict=True):
        passed += float(seconds) + drained.get(int(step), 0.0)
        yield int(step), passed, float(seconds), float(loss) if math.isfinite(loss) else None


def _seconds(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
