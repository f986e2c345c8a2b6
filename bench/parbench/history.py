"""A history is what runs of the same cells on one machine measured, one value per run, cell and metric.

A run here is one `parbench run`: launches of one run share how the machine was just then, so that only several runs
show how far a further one may lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from parbench.judging import DERIVED
from parbench.record import Better, Environment, Quality, Schema
from parbench.spec import RunSpec
from parbench.summary import Summary

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


def histories(summaries: Sequence[Summary], path: str = "") -> list[History]:
    """Return the history of each machine that `summaries` are from, the one with the newest run last."""
    machines: dict[str, list[Summary]] = {}
    for one in sorted(summaries, key=lambda one: one.id):
        if not one.interrupted:
            machines.setdefault(one.environment.fingerprint, []).append(one)
    return sorted((_history(group, path) for group in machines.values()), key=lambda one: one.runs[-1])


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


def _history(summaries: Sequence[Summary], path: str) -> History:
    commits = {one.run: one.commit for one in summaries}
    cells: dict[str, list[Summary]] = {}
    for one in summaries:
        cells.setdefault(one.spec_id, []).append(one)
    return History(
        environment=summaries[-1].environment,
        runs=tuple(commits),
        commits=tuple(commits.values()),
        cells={name: _cell(group) for name, group in cells.items()},
        path=path,
    )


def _cell(summaries: Sequence[Summary]) -> HistoryCell:
    last = summaries[-1]
    runs: dict[str, list[Summary]] = {}
    for one in summaries:
        runs.setdefault(one.run, []).append(one)
    good = {run: launches for run, launches in runs.items() if all(one.problem is None for one in launches)}
    bad = [one.problem for one in summaries if one.problem]
    names = dict.fromkeys(name for launches in good.values() for one in launches for name in one.numbers)
    return HistoryCell(
        name=last.name,
        device=last.device,
        backend=last.backend,
        compute=last.compute,
        passed=len(good),
        failed=len(runs) - len(good),
        reason=bad[-1] if bad else None,
        series={name: _series(name, good) for name in names if name not in DERIVED},
        spec=last.spec,
    )


def _series(name: str, runs: dict[str, list[Summary]]) -> Series:
    by_run = {run: [one.numbers[name] for one in launches if name in one.numbers] for run, launches in runs.items()}
    values = {run: [n.value for n in numbers if n.value is not None] for run, numbers in by_run.items()}
    measured = {run: median(found) for run, found in values.items() if found}
    newest = by_run[list(by_run)[-1]]
    known = next(number for numbers in by_run.values() for number in numbers)
    # Of several launches, the one that is least to be believed.
    worst = next((n for n in newest if n.quality in ("unavailable", "suspect")), newest[-1] if newest else None)
    return Series(
        unit=known.unit,
        better=known.better,
        runs=tuple(measured),
        values=tuple(measured.values()),
        reason=worst.reason if worst else "it is not in the records",
        quality=worst.quality if worst else "unavailable",
        drifted=sum(n.drifted for n in newest) > len(newest) / 2,
    )
