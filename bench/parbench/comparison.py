"""A Comparison is what `parbench compare` found: cells against their references, metric by metric, in plain data."""

from __future__ import annotations

import msgspec

from parbench.comparable import Differs
from parbench.record import Better, Schema
from parbench.verdict import Verdict

SCHEMA = Schema(name="parbench.comparison", major=1, minor=0)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one cell against its reference.

    Attributes:
        metric: its name.
        unit: of `old` and `new`.
        better: which direction is an improvement.
        old: the reference's value; None where it was not measured.
        new: this cell's value.
        ratio: new / old; None where that means nothing.
        low: lower end of the ratio's 95 % interval.
        high: upper end.
        p: chance of such a difference without a change, corrected for all comparisons of the table.
        detectable: the smallest change that as many measurements find with 80 % chance, a fraction.
        launches: fresh launches behind old and new.
        verdict: on this metric alone.
        word: the verdict in this metric's own word, such as "faster".
        why: a sentence, where there is something to say.
    """

    metric: str
    unit: str
    better: Better | None
    old: float | None
    new: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None
    launches: tuple[int, int] = (0, 0)
    verdict: Verdict
    word: str = ""
    why: str = ""


class CellCompared(msgspec.Struct, frozen=True, kw_only=True):
    """One cell against its reference.

    Attributes:
        workload: with its size.
        strategy: as the user wrote it.
        ranks: world size.
        reference: strategy and ranks it is held against; empty for a cell that stands alone.
        old_runs: ids of the reference's runs.
        new_runs: ids of this cell's runs.
        together: whether their rounds took turns in one launch.
        unranked: why nothing is said of better or worse; empty where it is.
        differs: what is not the same on both sides.
        metrics: one by one; never one winner for all.
        because: sentences on what accounts for the difference.
    """

    workload: str
    strategy: str
    ranks: int
    reference: str
    old_runs: tuple[str, ...]
    new_runs: tuple[str, ...]
    together: bool
    unranked: tuple[str, ...] = ()
    differs: tuple[Differs, ...] = ()
    metrics: tuple[Compared, ...] = ()
    because: tuple[str, ...] = ()


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """How a strategy does with more ranks, relative to its own or the reference's fewest.

    Attributes:
        workload: with its size.
        strategy: as the user wrote it.
        kind: "strong" (the same global batch) or "weak" (the same batch per rank).
        base: strategy and ranks of the base.
        ranks: world size.
        step_time_s: at `ranks`.
        speed_up: base's rate / this one's.
        efficiency: strong: T_1 / (N T_N); weak: T_1 / T_N; both from `base`.
        overhead_s: N T_N - T_1, rank seconds of a step beyond the base's.
    """

    workload: str
    strategy: str
    kind: str
    base: str
    ranks: int
    step_time_s: float
    speed_up: float
    efficiency: float
    overhead_s: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        old: the reference strategy, or the path of old results.
        new: the path of what is judged.
        fixed: per workload, what all of its strategies have in common: the budget they are compared at.
        differs: what differs for all cells alike.
        cells: one by one.
        missing: cells of old that new lacks, in words.
        added: cells of new that old lacks.
        scaling: where several world sizes were measured.
        notes: sentences a reader must know.
    """

    schema: Schema = SCHEMA
    old: str
    new: str
    fixed: tuple[str, ...] = ()
    differs: tuple[Differs, ...] = ()
    cells: tuple[CellCompared, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    scaling: tuple[Scaled, ...] = ()
    notes: tuple[str, ...] = ()
