"""A CheckResult is what `parbench check` found: every metric against its baseline, in plain data."""

from __future__ import annotations

from typing import Literal

import msgspec

from parbench.comparable import Differs
from parbench.record import Better, Schema

SCHEMA = Schema(name="parbench.check", major=1, minor=0)
Outcome = Literal["regression", "improvement", "changed", "passed", "inconclusive", "missing", "failed"]
FAILING = frozenset({"regression", "improvement", "changed", "missing", "failed"})
# What failed is on top.
ORDER: tuple[Outcome, ...] = ("failed", "missing", "regression", "improvement", "changed", "inconclusive", "passed")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one cell against its baseline.

    Attributes:
        cell: workload, strategy and ranks in words.
        metric: its name; empty for what concerns the whole cell.
        unit: of `old` and `new`.
        better: which direction is an improvement.
        old: median over the baseline's runs.
        new: median over the new runs.
        ratio: new / old.
        low: lower end of the ratio's interval.
        high: upper end.
        floor: what this machine's noise alone does, a fraction; no threshold may be below it.
        threshold: the change that counts, a fraction.
        p: chance of such a difference without a change, corrected for all that was checked.
        runs: behind old and new.
        outcome: what came of it.
        why: a sentence, where there is something to say.
    """

    cell: str
    metric: str = ""
    unit: str = ""
    better: Better | None = None
    old: float | None = None
    new: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    threshold: float | None = None
    p: float | None = None
    runs: tuple[int, int] = (0, 0)
    outcome: Outcome
    why: str = ""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """All of a check.

    Attributes:
        baseline: where the baseline is from.
        path: where the new runs are from.
        alpha: accepted chance of any false alarm.
        differs: what differs in software and environment.
        checked: what failed first.
        notes: sentences a reader must know.
    """

    schema: Schema = SCHEMA
    baseline: str
    path: str
    alpha: float
    differs: tuple[Differs, ...] = ()
    checked: tuple[Checked, ...] = ()
    notes: tuple[str, ...] = ()
