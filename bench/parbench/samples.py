"""Samples are what the launches of a cell measured of one metric, round by round where there are rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from parbench.comparable import by_cell
from parbench.difference import Sample, value_of
from parbench.gates import usable
from parbench.metrics import Cell, cell_of
from parbench.record import Metric, RunRecord

RATES = ("samples_per_s", "tokens_per_s", "samples_per_s_per_device")


def sample_of(records: Sequence[RunRecord], name: str) -> Sample:
    """Return the sample of metric `name`; launches that are not complete or lack it are left out (N2)."""
    launches = [rounds for record in records if record.status == "complete" and (rounds := _rounds(record, name))]
    return Sample(launches=launches, rate=name in RATES)


def metrics_of(records: Sequence[RunRecord]) -> dict[str, Metric]:
    """Return the metrics of the complete launches of one cell together: values and how far to trust them.

    They have no intervals, which take long and which a comparison finds itself.
    """
    complete = [record for record in records if record.status == "complete"]
    names = dict.fromkeys(name for record in complete for name in record.metrics)
    return {name: _metric_of(complete, name) for name in names}


def cells_of(records: Sequence[RunRecord]) -> list[Cell]:
    """Return every cell with its metrics over launches, without intervals, in the order in which cells first appear."""
    return [cell_of(group, metrics_of(group)) for group in by_cell(records)]


def ran_together(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> bool:
    """Whether launch k of both was one launch, in which their rounds took turns."""
    return len(old) == len(new) > 0 and all(_together(a, b) for a, b in zip(old, new, strict=True))


def _metric_of(records: Sequence[RunRecord], name: str) -> Metric:
    metrics = [record.metrics[name] for record in records if name in record.metrics]
    sample = sample_of(records, name)
    if not sample.launches:
        return next((one for one in metrics if one.value is None), metrics[0])
    rounds = [pair for launch in sample.launches for pair in launch]
    valued = [one for one in metrics if one.value is not None]
    worst = next((one for one in valued if one.quality == "suspect"), valued[-1])
    return msgspec.structs.replace(worst, value=value_of(rounds, rate=sample.rate), ci_low=None, ci_high=None)


def _together(a: RunRecord, b: RunRecord) -> bool:
    names = a.launch.get("interleaved_with")
    return (
        a.launch.get("sweep") is not None
        and a.launch.get("sweep") == b.launch.get("sweep")
        and a.repeat == b.repeat
        and a.started_at == b.started_at
        and isinstance(names, list)
        and b.spec.strategy in names
    )


def _rounds(record: RunRecord, name: str) -> list[tuple[float, float]]:
    metric = record.metrics.get(name)
    if metric is None or metric.value is None or not math.isfinite(metric.value):
        return []
    rounds = usable(record.rounds)
    if rounds and name == "step_time_s":
        return [(r.wall_s, r.steps) for r in rounds]
    if rounds and name in RATES:
        # The value is the rate of samples times this: tokens of a sample, or one rank's share.
        scale = metric.value / (sum(r.samples for r in rounds) / math.fsum(r.wall_s for r in rounds))
        return [(r.samples * scale, r.wall_s) for r in rounds]
    return [(metric.value, 1.0)]
