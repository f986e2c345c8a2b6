"""Samples are what the launches of a cell measured of one metric, round by round where there are rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parbench.difference import Sample
from parbench.gates import usable
from parbench.record import RunRecord

RATES = ("samples_per_s", "tokens_per_s", "samples_per_s_per_device")


def sample_of(records: Sequence[RunRecord], name: str) -> Sample:
    """Return the sample of metric `name`; launches that are not complete or lack it are left out (N2)."""
    launches = [rounds for record in records if record.status == "complete" and (rounds := _rounds(record, name))]
    return Sample(launches=launches, rate=name in RATES)


def ran_together(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> bool:
    """Whether launch k of both was one launch, in which their rounds took turns."""
    return len(old) == len(new) > 0 and all(_together(a, b) for a, b in zip(old, new, strict=True))


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
