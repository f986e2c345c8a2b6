"""A change point is where a history steps to another level: between which two runs, and so between which commits.

levels  ──────────┐ p      runs 1 to k were at one level, runs from k + 1 on at another
                  └─────────
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from parbench.errors import MissingError
from parbench.history import History, HistoryCell, Series
from parbench.noise import FEWEST_RUNS, noise_between
from parbench.record import Better, Schema
from parbench.resampling import adjusted
from parbench.verdict import ALPHA, MARGIN

SCHEMA = Schema(name="parbench.changes", major=1, minor=0)
# Dips shorter than this are no level.
_SHORTEST = 4
_MOST_LEVELS = 10
# Older runs are not looked at: they cost the square of their number, and their steps were found when they were new.
_MOST_RUNS = 200


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one series.

    Attributes:
        cell: workload, strategy and ranks in words.
        metric: its name.
        unit: of the levels.
        better: which direction is an improvement.
        before: the last run at the old level.
        after: the first run at the new level.
        commits: of those two; the change came after the first and not after the second.
        old: median of the old level.
        new: median of the new level.
        p: the chance of such a step in a series without one, corrected for all places and series.
        verdict: "better", "worse" or "changed".
    """

    cell: str
    metric: str
    unit: str
    better: Better | None
    before: str
    after: str
    commits: tuple[str | None, str | None]
    old: float
    new: float
    p: float
    verdict: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of a history, the latest first.

    Attributes:
        path: of the history.
        runs: how many it has.
        series: how many were looked at.
        points: what was found.
        notes: sentences a reader must know.
    """

    schema: Schema = SCHEMA
    path: str
    runs: int
    series: int
    points: tuple[ChangePoint, ...]
    notes: tuple[str, ...] = ()


def changes(history: History, metrics: Sequence[str] = (), alpha: float = ALPHA) -> Changes:
    """Return the change points of every series of a history.

    Where levels begin is proposed by binary segmentation with absolute deviations (ruptures: Truong, Oudre and
    Vayatis, Signal Processing 167, 2020); whether they do is decided by the same tests as `parbench check`, corrected
    for the number of places in a series (Bonferroni) and of series (Benjamini and Hochberg). Nothing is drawn by
    chance: the same history gives the same points.

    Args:
        history: runs of one machine.
        metrics: which to look at; all with a direction unless given.
        alpha: accepted chance of a step that is none.

    Raises:
        MissingError: ruptures is not installed.
    """
    found: list[ChangePoint] = []
    looked, short = 0, 0
    for cell in history.cells.values():
        for name, series in cell.series.items():
            if (metrics and name not in metrics) or (not metrics and series.better is None):
                continue
            if len(series.values) < FEWEST_RUNS + _SHORTEST:
                short += 1
                continue
            looked += 1
            found += _of_series(history, cell, name, series, alpha)
    kept = [
        msgspec.structs.replace(one, p=p)
        for one, p in zip(found, adjusted([one.p for one in found] + [1.0] * (looked - _stepping(found))), strict=False)
        if p <= alpha
    ]
    order = {run: k for k, run in enumerate(history.runs)}
    notes = [f"{short} series are shorter than {FEWEST_RUNS + _SHORTEST} runs and not looked at"] if short else []
    if len(history.runs) > _MOST_RUNS:
        notes.append(f"only the newest {_MOST_RUNS} runs are looked at")
    return Changes(
        path=history.path,
        runs=len(history.runs),
        series=looked,
        points=tuple(sorted(kept, key=lambda one: -order[one.after])),
        notes=tuple(notes),
    )


def _stepping(found: Sequence[ChangePoint]) -> int:
    return len({(one.cell, one.metric) for one in found})


def _of_series(history: History, cell: HistoryCell, name: str, series: Series, alpha: float) -> Iterator[ChangePoint]:
    commits = dict(zip(history.runs, history.commits, strict=False))
    values, runs = series.values[-_MOST_RUNS:], series.runs[-_MOST_RUNS:]
    places = len(values) - FEWEST_RUNS - _SHORTEST + 1
    ends = _levels(values, places, alpha)
    for start, middle, stop in zip([0, *ends], ends, [*ends[1:], len(values)], strict=False):
        old, new = values[start:middle], values[middle:stop]
        a, b = median(old), median(new)
        verdict = "changed" if series.better is None else "better" if (b < a) == (series.better == "lower") else "worse"
        before, after = runs[middle - 1], runs[middle]
        yield ChangePoint(
            cell=cell.name,
            metric=name,
            unit=series.unit,
            better=series.better,
            before=before,
            after=after,
            commits=(commits.get(before), commits.get(after)),
            old=a,
            new=b,
            p=_chance(old, new, places),
            verdict=verdict,
        )


def _levels(values: Sequence[float], places: int, alpha: float) -> list[int]:
    """Return where levels begin: more than there are at first, then the least certain go, one by one.

    Splitting first and merging after finds a level between two others, which hides while it is part of either (as in
    Hunter: Fleming et al., ICPE 2023).
    """
    ends = _proposed(values)
    while ends:
        bounds = [0, *ends, len(values)]
        around = zip(bounds, bounds[1:], bounds[2:], strict=False)
        chances = [_chance(values[a:b], values[b:c], places) for a, b, c in around]
        if max(chances) <= alpha:
            break
        ends.pop(chances.index(max(chances)))
    return ends


def _chance(old: Sequence[float], new: Sequence[float], places: int) -> float:
    """Return the chance of the step, by the noise of the longer side, for any of the places where it could be."""
    long, short = (old, new) if len(old) >= len(new) else (new, old)
    if len(set(old)) == len(set(new)) == 1:
        return 0.0 if abs(new[0] - old[0]) > MARGIN * abs(old[0]) else 1.0
    found = noise_between(long, short)
    if found is None or found.p is None or found.ratio is None or found.few:
        return 1.0
    if 1 / (1 + MARGIN) < found.ratio < 1 + MARGIN:
        return 1.0
    return min(1.0, found.p * places)


def _proposed(values: Sequence[float]) -> list[int]:
    """Return the starts of levels if there are as many as there can be, up to a limit."""
    try:
        import ruptures
    except ImportError as error:
        raise MissingError("change points need ruptures: pip install 'parbench[history]'") from error
    import numpy as np

    if len(set(values)) == 1:
        return []
    signal = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    most = min(_MOST_LEVELS, len(values) // _SHORTEST) - 1
    found = ruptures.Binseg(model="l1", min_size=_SHORTEST, jump=1).fit(signal).predict(n_bkps=most)
    return [int(end) for end in found[:-1]]
