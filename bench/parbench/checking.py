"""Checking holds new runs against a baseline and says whether they differ by more than this machine's own noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from parbench.checkresult import ORDER, Checked, CheckResult, Outcome
from parbench.comparable import environments
from parbench.errors import CheckFailed, UsageError
from parbench.history import History, HistoryCell, Series
from parbench.noise import FEWEST_RUNS, Noise, noise_between
from parbench.record import Better
from parbench.resampling import adjusted
from parbench.verdict import ALPHA, COUNTED, GROSS, MARGIN, ROUNDOFF

# Once per launch, and mostly the machine's: shown by compare, watched only where asked for.
UNWATCHED = frozenset({"startup_s", "compile_s"})


def check(
    old: History,
    new: History,
    *,
    thresholds: Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    alpha: float = ALPHA,
) -> CheckResult:
    """Check new runs against a baseline of the same machine.

    A change is an alarm if it is larger than the threshold, if its interval leaves out "no change", and if so unequal
    runs are unlikely by chance, whatever their distribution, corrected for the number of cells and metrics.

    Args:
        old: the baseline.
        new: what is judged.
        thresholds: metric -> fraction that counts as a change ("" for all others); the noise floor, at least 2 %,
            unless given.
        metrics: which to check; every one with a direction but start-up and compile times unless given.
        alpha: accepted chance of any false alarm.

    Raises:
        CheckFailed: the two cannot be compared, or nothing was measured.
        UsageError: a threshold is below this machine's noise.
    """
    _refuse(old, new)
    wanted = dict(thresholds or {})
    whole = [*_whole_cells(old, new)]
    pairs = [
        (name, metric, old.cells[name], new.cells[name])
        for name in old.cells
        if name in new.cells and new.cells[name].passed and old.cells[name].passed
        for metric in _watched(old.cells[name], new.cells[name], metrics)
    ]
    noise = [_noise(metric, a, b, alpha) for _, metric, a, b in pairs]
    _refuse_thresholds(pairs, noise, wanted)
    corrected = iter(adjusted([one.p for one in noise if one is not None and one.p is not None]))
    checked = []
    for (_, metric, a, b), one in zip(pairs, noise, strict=True):
        p = next(corrected) if one is not None and one.p is not None else None
        checked.append(_outcome(metric, a, b, one, p, wanted.get(metric, wanted.get("")), alpha))
    everything = [*whole, *checked]
    if not any(one.metric for one in everything) and not whole:
        raise CheckFailed("nothing was checked: no cell of the baseline was measured; an empty result never passes")
    return CheckResult(
        baseline=old.path,
        path=new.path,
        alpha=alpha,
        differs=tuple(environments(old.environment, new.environment)),
        checked=tuple(sorted(everything, key=lambda one: ORDER.index(one.outcome))),
        notes=tuple(_notes(old, new)),
    )


def _noise(metric: str, a: HistoryCell, b: HistoryCell, alpha: float) -> Noise | None:
    old, new = a.series.get(metric), b.series.get(metric)
    return noise_between(old.values, new.values, alpha) if old is not None and new is not None else None


def _outcome(
    metric: str, a: HistoryCell, b: HistoryCell, one: Noise | None, p: float | None, asked: float | None, alpha: float
) -> Checked:
    old, new = a.series[metric], b.series.get(metric)
    runs = (len(old.values), len(new.values) if new else 0)
    base = Checked(cell=b.name, metric=metric, unit=old.unit, better=old.better, runs=runs, outcome="passed")
    if one is None or new is None:
        why = (new.reason if new else None) or "it is not in the new records"
        return msgspec.structs.replace(base, old=median(old.values), outcome="missing", why=why)
    threshold = max(MARGIN, one.floor or 0.0) if asked is None else asked
    base = msgspec.structs.replace(
        base,
        old=one.old,
        new=one.new,
        ratio=one.ratio,
        low=one.low,
        high=one.high,
        floor=one.floor,
        threshold=threshold,
        p=p,
    )
    if new.quality == "suspect":
        return msgspec.structs.replace(base, outcome="missing", why=f"suspect: {new.reason}")
    outcome, why = _judged(metric, old, new, one, p, threshold, alpha)
    if outcome in ("regression", "improvement", "changed") and new.drifted:
        outcome, why = "inconclusive", "it changed by more than 10 % while it was measured: measure again"
    return msgspec.structs.replace(base, outcome=outcome, why=why)


def _judged(
    metric: str, old: Series, new: Series, one: Noise, p: float | None, threshold: float, alpha: float
) -> tuple[Outcome, str]:
    moved = _moved(old.better, one.new - one.old)
    constant = len(set(old.values)) == 1
    if constant and (len(old.values) >= FEWEST_RUNS or metric in COUNTED):
        near = one.old != 0 and abs(one.new / one.old - 1) < ROUNDOFF
        return ("passed", "") if near or one.new == one.old else (moved, "the baseline never varied")
    if len(old.values) < FEWEST_RUNS:
        return "inconclusive", f"the baseline has {_runs(len(old.values))}, at least {FEWEST_RUNS} are needed"
    if one.ratio is None or one.low is None or one.high is None or p is None:
        inside = min(old.values) <= one.new <= max(old.values)
        return ("passed", "") if inside else ("inconclusive", "a ratio of these values means nothing")
    if abs(math.log(one.ratio)) < math.log1p(threshold):
        return "passed", ""
    if one.few and not (one.outside and abs(math.log(one.ratio)) >= math.log(GROSS)):
        return "inconclusive", f"{_runs(len(new.values))} cannot show a change under {GROSS - 1:.0%}: measure 3 or more"
    if p > alpha or one.low <= 1 <= one.high:
        return "inconclusive", "it may be noise: measure again, so that there are more runs"
    return moved, "" if moved == "regression" else "if this is meant, record a new baseline"


def _moved(better: Better | None, change: float) -> Outcome:
    if better is None:
        return "changed"
    return "improvement" if (change < 0) == (better == "lower") else "regression"


def _watched(a: HistoryCell, b: HistoryCell, metrics: Sequence[str]) -> list[str]:
    known = [name for name, series in a.series.items() if series.values]
    if metrics:
        return [name for name in metrics if name in known]
    return [name for name in known if a.series[name].better is not None and name not in UNWATCHED]


def _whole_cells(old: History, new: History) -> list[Checked]:
    """Return what concerns whole cells: lost, failed, flaky, without a baseline."""
    found = []
    for name, a in old.cells.items():
        b = new.cells.get(name)
        of = a.passed + a.failed
        if b is None:
            found.append(Checked(cell=a.name, outcome="missing", why="the new runs lack this cell"))
        elif not a.passed:
            why = f"it never passed in {_runs(of)} of the baseline ({a.reason})"
            found.append(Checked(cell=a.name, outcome="inconclusive", why=why))
        elif b.failed and a.failed:
            why = f"flaky: it failed in {a.failed} of {_runs(of)} of the baseline too; now: {b.reason}"
            found.append(Checked(cell=a.name, outcome="inconclusive", why=why))
        elif b.failed:
            found.append(Checked(cell=a.name, outcome="failed", why=b.reason or "it failed"))
    for name, b in new.cells.items():
        if name not in old.cells:
            found.append(Checked(cell=b.name, outcome="inconclusive", why="the baseline lacks this cell"))
    return found


def _refuse(old: History, new: History) -> None:
    for name, a in old.cells.items():
        b = new.cells.get(name)
        if b is None:
            continue
        for what in ("device", "backend", "compute"):
            before, after = getattr(a, what), getattr(b, what)
            if before != after:
                raise CheckFailed(
                    f"{a.name}: {what} {before} in the baseline, {after} now: not comparable; record a baseline alike"
                )
    if set(new.runs) & set(old.runs):
        raise UsageError(
            "the new runs are part of the baseline: they would be compared with themselves; leave them out"
        )


def _refuse_thresholds(
    pairs: Sequence[tuple[str, str, HistoryCell, HistoryCell]],
    noise: Sequence[Noise | None],
    thresholds: Mapping[str, float],
) -> None:
    below = [
        (one.floor - asked, metric, a.name, one.floor, asked)
        for (_, metric, a, _), one in zip(pairs, noise, strict=True)
        if one is not None
        and one.floor is not None
        and (asked := thresholds.get(metric, thresholds.get(""))) is not None
        and asked < one.floor
    ]
    if below:
        _, metric, cell, floor, asked = max(below)
        raise UsageError(
            f"a threshold of {asked:.2%} is below the noise of this machine: {metric} of {cell} differs by {floor:.2%} "
            f"without any change ({len(below)} of {len(pairs)} are noisier than the threshold); give at least that, "
            "check fewer metrics, or measure more runs"
        )


def _notes(old: History, new: History) -> list[str]:
    notes = [f"baseline: {_runs(len(old.runs))}; new: {_runs(len(new.runs))}"]
    if len(new.runs) < 3:
        notes.append(
            f"one or two new runs show only changes beyond {GROSS - 1:.0%}, because one run in many is an outlier: "
            "measure three or more for smaller ones"
        )
    return notes


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
