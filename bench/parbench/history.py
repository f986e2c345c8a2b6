"""A history is what runs of the same cells on one machine measured, one value per run, cell and metric.

A run here is one `parbench run`: launches of one run share how the machine was just then, so that only several runs
show how far a further one may lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from parbench.judging import RESCALED
from parbench.metrics import combine
from parbench.record import Better, Environment, Metric, Quality, RunRecord, Schema
from parbench.samples import sample_of
from parbench.spec import RunSpec
from parbench.verdict import drifted

SCHEMA = Schema(name="parbench.baseline", major=1, minor=0)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one cell over runs.

    Attributes:
        unit: of the values.
        better: which direction is an improvement.
        runs: id of each run, oldest first.
        values: one per run; the median over its launches.
        reason: why there is no value, where there is none; or why the newest cannot be believed.
        quality: the newest value's.
        drifted: the newest run got slower or faster while it was measured.
    """

    unit: str
    better: Better | None
    runs: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    reason: str | None = None
    quality: Quality = "measured"
    drifted: bool = False


class HistoryCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell over runs.

    Attributes:
        name: workload, strategy and ranks in words.
        device: where it really computed.
        backend: what really moved its tensors.
        compute: "real", "paced" or "simulated".
        passed: runs in which it was complete and trained as its strategy claims.
        failed: runs in which it was not.
        reason: why it failed last.
        series: by metric.
        spec: what was asked, where that is known.
    """

    name: str
    device: str = ""
    backend: str = ""
    compute: str = "real"
    passed: int = 0
    failed: int = 0
    reason: str | None = None
    series: dict[str, Series] = {}
    spec: RunSpec | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one machine.

    Attributes:
        environment: of the newest run.
        runs: id of every run, oldest first.
        commits: of each run, in the same order.
        cells: by spec_id.
        path: where it is from; not stored.
    """

    schema: Schema = SCHEMA
    environment: Environment
    runs: tuple[str, ...]
    commits: tuple[str | None, ...] = ()
    cells: dict[str, HistoryCell]
    path: str = ""


def histories(records: Sequence[RunRecord], path: str = "") -> list[History]:
    """Return the history of each machine that `records` are from, the one with the newest run last."""
    machines: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda one: one.id):
        if record.status != "interrupted":  # says nothing about the cell
            machines.setdefault(record.environment.fingerprint, []).append(record)
    return sorted((_history(one, path) for one in machines.values()), key=lambda one: one.runs[-1])


def merged(found: Sequence[History]) -> History:
    """Return several histories of one machine, oldest first, as one."""
    cells: dict[str, list[HistoryCell]] = {}
    for history in found:
        for name, cell in history.cells.items():
            cells.setdefault(name, []).append(cell)
    return History(
        environment=found[-1].environment,
        runs=tuple(run for history in found for run in history.runs),
        commits=tuple(commit for history in found for commit in history.commits),
        cells={name: _merged_cell(group) for name, group in cells.items()},
        path=found[-1].path,
    )


def _merged_cell(cells: Sequence[HistoryCell]) -> HistoryCell:
    names = dict.fromkeys(name for cell in cells for name in cell.series)
    parts = {name: [cell.series[name] for cell in cells if name in cell.series] for name in names}
    return msgspec.structs.replace(
        cells[-1],
        passed=sum(cell.passed for cell in cells),
        failed=sum(cell.failed for cell in cells),
        reason=next((cell.reason for cell in reversed(cells) if cell.reason), None),
        series={
            name: msgspec.structs.replace(
                found[-1],
                runs=tuple(run for one in found for run in one.runs),
                values=tuple(value for one in found for value in one.values),
            )
            for name, found in parts.items()
        },
    )


def run_of(record: RunRecord) -> str:
    """Return the id of the `parbench run` that a record belongs to."""
    return str(record.launch.get("sweep") or record.id)


def _history(records: Sequence[RunRecord], path: str) -> History:
    commits = {run_of(record): _commit(record) for record in records}
    cells: dict[str, list[RunRecord]] = {}
    for record in records:
        cells.setdefault(record.spec_id, []).append(record)
    return History(
        environment=records[-1].environment,
        runs=tuple(commits),
        commits=tuple(commits.values()),
        cells={name: _cell(group) for name, group in cells.items()},
        path=path,
    )


def _cell(records: Sequence[RunRecord]) -> HistoryCell:
    last = records[-1]
    runs: dict[str, list[RunRecord]] = {}
    for record in records:
        runs.setdefault(run_of(record), []).append(record)
    good = {run: launches for run, launches in runs.items() if all(_problem(one) is None for one in launches)}
    bad = [problem for record in records if (problem := _problem(record))]
    names = dict.fromkeys(name for launches in good.values() for one in launches for name in one.metrics)
    newest = combine(good[list(good)[-1]])[-1].metrics if good else {}
    spec = last.spec
    time = last.metrics.get("step_time_s")
    return HistoryCell(
        name=f"{spec.workload}/{spec.size} {spec.strategy} at {spec.world_size}",
        device=last.chosen["device"].value if "device" in last.chosen else spec.device,
        backend=last.chosen["backend"].value if "backend" in last.chosen else spec.backend,
        compute=time.quality if time is not None and time.quality in ("paced", "simulated") else "real",
        passed=len(good),
        failed=len(runs) - len(good),
        reason=bad[-1] if bad else None,
        series={name: _series(name, good, newest.get(name)) for name in names if name not in RESCALED},
        spec=spec,
    )


def _series(name: str, runs: dict[str, list[RunRecord]], metric: Metric | None) -> Series:
    measured = {run: median(found) for run, launches in runs.items() if (found := sample_of(launches, name).values)}
    newest = runs[list(runs)[-1]]
    known = next(one.metrics[name] for launches in runs.values() for one in launches if name in one.metrics)
    lacking = metric is None or metric.value is None
    return Series(
        unit=known.unit,
        better=known.better,
        runs=tuple(measured),
        values=tuple(measured.values()),
        reason=metric.reason if metric else "it is not in the records",
        quality="unavailable" if lacking or metric is None else metric.quality,
        drifted=drifted(sample_of(newest, name)),
    )


def _problem(record: RunRecord) -> str | None:
    """Return why a launch does not count as one that passed."""
    agreement = record.agreement
    if record.status != "complete":
        return f"{record.status}: {record.reason or 'no reason given'}"
    if record.numerics != "finite":
        return f"diverged: {record.numerics}"
    if agreement is not None and agreement.passed is False:
        return f"it does not train as its strategy claims: {agreement.reason}"
    return None


def _commit(record: RunRecord) -> str | None:
    found = record.environment.facts.get("commit")
    return None if found is None else str(found)
