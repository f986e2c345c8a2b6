"""Metrics are what raw rounds amount to: step time and throughput, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType

import msgspec

from parbench.gates import SUSPECT_CODES, self_check, usable
from parbench.record import Better, Metric, Quality, Round, RunRecord, Warned
from parbench.spec import RunSpec
from parbench.statistics import Interval, median_interval, ratio_of_sums_interval, spread

__all__ = [
    "SUSPECT_CODES",
    "TIMING",
    "Cell",
    "combine",
    "judged",
    "mark_suspect",
    "self_check",
    "timing_metrics",
    "usable",
]

# Metrics that `timing_metrics` gives, and that a failed gate makes suspect.
TIMING = ("step_time_s", "samples_per_s", "tokens_per_s", "samples_per_s_per_device")

# Of several qualities, a combined number has the last of them.
_TRUST: tuple[Quality, ...] = ("measured", "estimated", "paced", "simulated", "suspect", "unavailable")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """All fresh launches of one cell on one class of machine with one software.

    Attributes:
        spec: what was asked.
        spec_id: its name.
        strategy: the strategy as the user wrote it.
        fingerprint: hardware class of all of them.
        software: versions and commit of all of them.
        run_ids: every launch, by repeat and then time.
        statuses: how each ended, in the same order.
        launches: how many of them are complete; only those are behind `metrics`.
        metrics: over launches; unavailable with the reason where none is complete.
        launch_medians: per metric, its value in each complete launch that has one.
        spread: per metric with at least two of those, (max - min) / median.
        rankable: whether the cell may be called faster or slower than another.
    """

    spec: RunSpec
    spec_id: str
    strategy: str
    fingerprint: str
    software: str
    run_ids: tuple[str, ...]
    statuses: tuple[str, ...]
    launches: int
    metrics: dict[str, Metric]
    launch_medians: dict[str, list[float]]
    spread: dict[str, float]
    rankable: bool


def timing_metrics(
    launches: Sequence[Sequence[Round]], *, unit: str, units_per_sample: int, world_size: int
) -> dict[str, Metric]:
    """Return step time and throughput of one cell, by the definitions of docs/metrics.md.

    `step_time_s` is the median over rounds of the slowest rank's wall time / steps; `samples_per_s` is the sum of
    samples / the sum of the same wall times. Samples are global, so the number of ranks changes neither.

    Args:
        launches: the rounds of each fresh launch; rounds in which time did not run forwards are left out.
        unit: "samples" or "tokens": what the workload counts.
        units_per_sample: tokens in a sample.
        world_size: ranks, one device each.
    """
    good = [usable(rounds) for rounds in launches]
    n, of = sum(map(len, good)), f"{sum(map(bool, good))} launches" if len(launches) > 1 else "one launch"
    if not n:
        reason = "every round was dropped: time did not run forwards" if any(launches) else "no round was measured"
        return {name: Metric.unavailable(_unit(name), _better(name), reason) for name in TIMING}
    step = median_interval([[r.wall_s / r.steps for r in rounds] for rounds in good])
    rate = ratio_of_sums_interval([[(r.samples, r.wall_s) for r in rounds] for rounds in good])
    total = f"samples / wall time of the slowest rank, summed over {n} rounds of {of}"
    tokens = Metric.unavailable("tokens/s", "higher", f"the workload counts {unit}, not tokens")
    if unit == "tokens":
        tokens = _metric("tokens_per_s", rate, f"{total}, x {units_per_sample} tokens", scale=units_per_sample)
    return {
        "step_time_s": _metric(
            "step_time_s", step, f"median over {n} rounds of {of}: wall time of the slowest rank / steps"
        ),
        "samples_per_s": _metric("samples_per_s", rate, total),
        "tokens_per_s": tokens,
        "samples_per_s_per_device": _metric(
            "samples_per_s_per_device", rate, f"{total}, / {world_size} ranks", scale=1 / world_size
        ),
    }


def mark_suspect(metrics: Mapping[str, Metric], reason: str) -> dict[str, Metric]:
    """Return `metrics` with every timing metric that has a value marked as one not to believe."""
    return {
        name: metric.suspected(reason) if name in TIMING and metric.value is not None else metric
        for name, metric in metrics.items()
    }


def judged(metrics: Mapping[str, Metric], warnings: Sequence[Warned]) -> dict[str, Metric]:
    """Return `metrics`, their timing marked suspect where one of `warnings` says that it cannot be believed."""
    damning = [f"{w.code}: {w.message}" for w in warnings if w.code in SUSPECT_CODES]
    return mark_suspect(metrics, damning[0]) if damning else dict(metrics)


def combine(records: Sequence[RunRecord]) -> list[Cell]:
    """Gather fresh launches of the same cell, in the order in which cells first appear.

    Launches on another class of machine or with other software are other cells: their timings are not samples of one
    thing.
    """
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        key = (record.spec_id, record.environment.fingerprint, record.environment.software)
        groups.setdefault(key, []).append(record)
    return [_cell(sorted(group, key=lambda r: (r.repeat, r.id))) for group in groups.values()]


def _cell(records: Sequence[RunRecord]) -> Cell:
    complete = [r for r in records if r.status == "complete"]
    # A record has its own launch's metrics; their intervals need not be drawn again.
    alone = [r.metrics if "step_time_s" in r.metrics else _of_launches([r]) for r in complete]
    medians = {
        name: values
        for name in dict.fromkeys(name for metrics in alone for name in metrics)
        if (values := [m.value for metrics in alone if (m := metrics.get(name)) is not None and m.value is not None])
    }
    return cell_of(
        records,
        _of_launches(complete) if complete else _none_complete(records),
        launch_medians=medians,
        spreads={name: wide for name, values in medians.items() if (wide := spread(values)) is not None},
    )


def cell_of(
    records: Sequence[RunRecord],
    metrics: Mapping[str, Metric],
    *,
    launch_medians: Mapping[str, list[float]] = MappingProxyType({}),
    spreads: Mapping[str, float] = MappingProxyType({}),
) -> Cell:
    """Return the cell of fresh launches, in order of repeat, with what was made of their metrics.

    Args:
        records: of one cell, at least one.
        metrics: over its complete launches.
        launch_medians: name -> value of each launch.
        spreads: name -> how far launches are apart.
    """
    first = records[0]
    return Cell(
        spec=first.spec,
        spec_id=first.spec_id,
        strategy=first.spec.strategy,
        fingerprint=first.environment.fingerprint,
        software=first.environment.software,
        run_ids=tuple(r.id for r in records),
        statuses=tuple(r.status for r in records),
        launches=sum(r.status == "complete" for r in records),
        metrics=dict(metrics),
        launch_medians=dict(launch_medians),
        spread=dict(spreads),
        # One that was interrupted says nothing about the cell; one that failed does.
        rankable=any(r.status == "complete" for r in records)
        and all(r.rankable for r in records if r.status != "interrupted"),
    )


def _none_complete(records: Sequence[RunRecord]) -> dict[str, Metric]:
    last = records[-1]
    reason = f"no launch is complete: {last.status}" + (f" ({last.reason})" if last.reason else "")
    return {name: Metric.unavailable(_unit(name), _better(name), reason) for name in TIMING}


def _of_launches(records: Sequence[RunRecord]) -> dict[str, Metric]:
    """Return the metrics of complete launches: timing from all their rounds, the rest from their values."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    gathered = {name: [r.metrics[name] for r in records if name in r.metrics] for name in names}
    combined = {name: _of_values(metrics) for name, metrics in gathered.items()}
    if any(usable(r.rounds) for r in records):
        unit, per_sample = _counted(records[0])
        timing = timing_metrics(
            [r.rounds for r in records], unit=unit, units_per_sample=per_sample, world_size=records[0].spec.world_size
        )
        combined |= {name: _distrusted(metric, gathered.get(name, [])) for name, metric in timing.items()}
    return combined


def _counted(record: RunRecord) -> tuple[str, int]:
    """Return what the workload counts and how many of it a sample is, as the launch noted them."""
    unit, each = record.launch.get("unit", "samples"), record.launch.get("units_per_sample", 1)
    return str(unit), each if isinstance(each, int) else 1


def _of_values(metrics: Sequence[Metric]) -> Metric:
    """Return the median of a metric over launches; one launch's metric is kept as it is."""
    values = [m.value for m in metrics if m.value is not None]
    valued = [m for m in metrics if m.value is not None]
    if len(valued) < 2:
        return valued[0] if valued else metrics[0]
    found = median_interval([[value] for value in values])
    return _distrusted(
        msgspec.structs.replace(
            valued[0],
            value=median(values),
            n=len(values),
            ci_low=found.low,
            ci_high=found.high,
            source=f"median of {len(values)} launches: {valued[0].source}",
            quality="measured",
            reason=None,
        ),
        valued,
    )


def _distrusted(metric: Metric, parts: Sequence[Metric]) -> Metric:
    """Return `metric` with the worst quality among the launches' own, and the reason for it."""
    worst = max((p for p in parts if p.value is not None), key=lambda p: _TRUST.index(p.quality), default=None)
    if metric.value is None or worst is None or _TRUST.index(worst.quality) <= _TRUST.index(metric.quality):
        return metric
    return msgspec.structs.replace(metric, quality=worst.quality, reason=worst.reason)


def _metric(name: str, found: Interval, source: str, *, scale: float = 1) -> Metric:
    value, low, high = (None if x is None else x * scale for x in (found.value, found.low, found.high))
    return Metric(
        value=value, unit=_unit(name), better=_better(name), n=found.n, ci_low=low, ci_high=high, source=source
    ).finite()


def _unit(name: str) -> str:
    return {"step_time_s": "s", "tokens_per_s": "tokens/s"}.get(name, "samples/s")


def _better(name: str) -> Better:
    return "lower" if name == "step_time_s" else "higher"
