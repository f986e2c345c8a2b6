"""Judging gives every metric of every pair of cells its verdict, corrected for how many verdicts there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from parbench.comparable import differs
from parbench.comparison import CellCompared, Compared
from parbench.difference import Difference, difference
from parbench.explain import because
from parbench.record import Metric, RunRecord
from parbench.resampling import adjusted
from parbench.samples import metrics_of, ran_together, sample_of
from parbench.verdict import COUNTED, MARGIN, Verdict, drifted, verdict, word

# Of fewer launches in turns, signs of pairs have no chance small enough to be corrected; ranks of all do.
_TURNS_IN_PAIRS = 9
# Follow from metrics that are judged: the same samples multiplied by a constant, and what a peak leaves when everything
# known is taken off, which is small and mostly noise (it differed by 30 % between unchanged runs). What a few steps
# under a profiler show explains a change, and is none.
_TRACED = (
    *("traced_step_time_s", "traced_over_timed", "exposed_comm_fraction"),
    *("overlap_fraction", "bubble_fraction", "bus_bandwidth_bytes_per_s"),
)
DERIVED = frozenset({"tokens_per_s", "samples_per_s_per_device", "memory_other_bytes", *_TRACED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A cell and what it is held against.

    Attributes:
        old: the reference's launches.
        new: the cell's launches.
        reference: what the reference is called; empty for a cell that stands alone.
        same_strategy: the two are one strategy at two times, so that it is compared even if it trains in its own way.
        turns: launch k of both ran one after the other.
    """

    old: Sequence[RunRecord]
    new: Sequence[RunRecord]
    reference: str
    same_strategy: bool = False
    turns: bool = False

    @property
    def together(self) -> bool:
        """Whether rounds of both took turns in one launch."""
        return ran_together(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One metric of a pair before its verdict: `difference` is None where `why` says that there is none."""

    metric: str
    old: Metric | None
    new: Metric | None
    difference: Difference | None = None
    why: str = ""


def judged(
    pairs: Sequence[Pair], margin: float = MARGIN, watches: Callable[[str], bool] | None = None
) -> Iterator[CellCompared]:
    """Yield every pair compared.

    Args:
        pairs: all that are shown together: chances are corrected for their number.
        margin: fraction below which a change is none.
        watches: which metrics to compare; all unless given.
    """
    unranked = [_unranked(pair) for pair in pairs]
    rows = [_row(pair, judge=not why and bool(pair.reference)) for pair, why in zip(pairs, unranked, strict=True)]
    found = [[one for one in row if watches is None or watches(one.metric)] for row in rows]
    raw = [one.difference.p for row in found for one in row if one.difference and one.difference.p is not None]
    corrected = iter(adjusted(raw))
    for pair, why, row in zip(pairs, unranked, found, strict=True):
        metrics = []
        for one in row:
            tested = one.difference is not None and one.difference.p is not None
            metrics.append(_compared(one, pair, next(corrected) if tested else None, margin))
        yield _cell(pair, why, metrics)


def _row(pair: Pair, *, judge: bool) -> list[_Found]:
    """Return every metric that either side measured."""
    old, new = metrics_of(pair.old) if pair.reference else {}, metrics_of(pair.new)
    names = [name for name, m in (old | new).items() if name not in DERIVED and (_has(m) or _has(old.get(name)))]
    return [_found(name, pair, old.get(name), new.get(name), judge=judge) for name in names]


def _found(name: str, pair: Pair, old: Metric | None, new: Metric | None, *, judge: bool) -> _Found:
    if not judge:
        return _Found(metric=name, old=old, new=new, why=(new.reason or "") if new else "")
    sides = (("old", old), ("new", new))
    lacking = [f"{side}: {m.reason if m else 'it is not in the records'}" for side, m in sides if not _has(m)]
    suspect = [f"{side} is suspect: {m.reason}" for side, m in sides if m is not None and m.quality == "suspect"]
    if lacking or suspect:
        return _Found(metric=name, old=old, new=new, why="; ".join(lacking or suspect))
    samples = [sample_of(side, name) for side in (pair.old, pair.new)]
    in_pairs = pair.together or (pair.turns and len(pair.new) >= _TURNS_IN_PAIRS)
    found = difference(samples[0], samples[1], paired=in_pairs)
    wandering = (
        [] if pair.together else [s for s, sample in zip(("old", "new"), samples, strict=True) if drifted(sample)]
    )
    why = (
        f"{' and '.join(wandering)} changed by more than 10 % while it was measured: measure again" if wandering else ""
    )
    return _Found(metric=name, old=old, new=new, difference=found, why=why)


def _compared(one: _Found, pair: Pair, p: float | None, margin: float) -> Compared:
    known = one.new or one.old
    unit, better = (known.unit, known.better) if known else ("", None)
    old, new = (m.value if m else None for m in (one.old, one.new))
    found = one.difference
    if found is None or old is None or new is None:
        alone: Verdict = "not ranked" if _has(one.new) else "missing"
        return Compared(
            metric=one.metric,
            unit=unit,
            better=better,
            old=old,
            new=new,
            verdict=alone,
            word=alone if pair.reference else "",
            why=one.why,
        )
    given, why = verdict(one.metric, found, unit=unit, better=better, p=p, change=new - old, margin=margin)
    if one.why and given in ("better", "worse", "changed") and one.metric not in COUNTED:
        given, why = "inconclusive", one.why
    return Compared(
        metric=one.metric,
        unit=unit,
        better=better,
        old=old,
        new=new,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p=p,
        detectable=found.detectable,
        launches=found.launches,
        verdict=given,
        word=word(unit, given, better),
        why=why,
    )


def _cell(pair: Pair, why: tuple[str, ...], metrics: Sequence[Compared]) -> CellCompared:
    last = pair.new[-1]
    complete = [[r for r in side if r.status == "complete"] for side in (pair.old, pair.new)]
    moved = any(one.metric == "step_time_s" and one.verdict in ("better", "worse") for one in metrics)
    return CellCompared(
        workload=f"{last.spec.workload}/{last.spec.size}",
        strategy=last.spec.strategy,
        ranks=last.spec.world_size,
        reference=pair.reference,
        old_runs=tuple(r.id for r in pair.old) if pair.reference else (),
        new_runs=tuple(r.id for r in pair.new),
        together=pair.together,
        unranked=why,
        differs=tuple(differs(pair.old, pair.new)) if pair.same_strategy else (),
        metrics=tuple(metrics),
        because=tuple(because(*complete)) if moved else (),
    )


def _unranked(pair: Pair) -> tuple[str, ...]:
    """Return why the cell or its reference may not be called better or worse."""
    sides = [("", pair.new), ("the reference: ", pair.old if pair.reference else ())]
    found = [f"{side}{why}" for side, records in sides for r in records if (why := _problem(r, pair.same_strategy))]
    return tuple(dict.fromkeys(found))


def _problem(record: RunRecord, same_strategy: bool) -> str | None:
    agreement = record.agreement
    if record.status != "complete":
        return f"{record.status}: {record.reason or 'no reason given'}"
    if record.numerics != "finite":
        return f"diverged: {record.numerics}"
    if agreement is None or agreement.passed is None:
        return "agreement was not checked"
    if not agreement.passed:
        return f"it does not train as one process does: {agreement.reason}"
    if not same_strategy and agreement.declared not in ("exactly", "closely"):
        return f"it trains {agreement.declared}, not step for step as one process: compare by loss, not by speed alone"
    return None


def _has(metric: Metric | None) -> bool:
    return metric is not None and metric.value is not None
