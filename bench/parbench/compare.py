"""Comparing holds cells against a reference strategy, or the cells of two paths against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from parbench.budget import Budget, at_budget
from parbench.comparable import ALLOWED, REFERENCE, Differs, alike, by_cell, differs, grouped
from parbench.comparison import CellCompared, Comparison
from parbench.errors import CheckFailed, UsageError, unknown_name
from parbench.judging import Pair, judged
from parbench.metrics import Cell
from parbench.record import RunRecord
from parbench.samples import cells_of
from parbench.scaling import crossover, scaling
from parbench.verdict import MARGIN

_NOT_TOGETHER = (
    "old and new were measured at different times: how the machine changed in between is not in these intervals; "
    "parbench check --against-head measures both in turns"
)


def compare_strategies(
    records: Sequence[RunRecord],
    *,
    path: str,
    reference: str | None = None,
    margin: float = MARGIN,
    budget: Budget | None = None,
) -> Comparison:
    """Hold every strategy of a sweep against `reference`, on the same workload, batch and machine.

    Args:
        records: of the sweep.
        path: where they are from.
        reference: a strategy as it was written; by default `single`, else the first.
        margin: fraction below which a change is none.
        budget: what is fixed instead of the global batch.

    Raises:
        UsageError: no cell has that strategy, or none is within the budget.
    """
    cells = cells_of(records)
    names = list(dict.fromkeys(cell.strategy for cell in cells))
    if reference is not None and reference not in names:
        raise unknown_name("strategy", reference, names, "the strategies of these records")
    named = reference or next((name for name in (REFERENCE, *names) if name in names), "")
    by_id = {record.id: record for record in records}
    groups = grouped(cells) if budget is None else at_budget(cells, budget, lambda cell: _tokens(cell, by_id))
    pairs = [pair for group in groups for pair in _against(group, named, by_id)]
    notes = [sentence for group in grouped(cells) for sentence in crossover(group)]
    if {cell.spec.world_size for cell in cells} - {1} and any(cell.strategy == REFERENCE for cell in cells):
        notes.append(f"{REFERENCE} is one process without a wrapper, whatever the ranks of the others")
    return Comparison(
        old=named,
        new=path,
        fixed=tuple(dict.fromkeys(_fixed(cell, by_id, budget) for group in groups for cell in _at_batches(group))),
        cells=tuple(judged(pairs, margin, watches=budget.watches if budget else None)),
        scaling=tuple(scaling(cells, [_place(cell) for cell in cells])),
        notes=tuple(dict.fromkeys(notes)),
    )


def compare_paths(
    old: Sequence[RunRecord],
    new: Sequence[RunRecord],
    *,
    old_path: str,
    new_path: str,
    allow: Sequence[str] = (),
    turns: bool = False,
    margin: float = MARGIN,
) -> Comparison:
    """Hold the cells of `new` against the same cells of `old`.

    Args:
        old: records of the one path.
        new: records of the other.
        old_path: what to call it.
        new_path: likewise.
        allow: what may differ although it forbids comparing (`comparable.ALLOWED`).
        turns: launch k of both sides were measured one after the other.
        margin: fraction below which a change is none.

    Raises:
        UsageError: `allow` has a word nobody knows.
        CheckFailed: the two are not comparable.
    """
    if unknown := [name for name in allow if name not in ALLOWED]:
        raise unknown_name("difference", unknown[0], ALLOWED, "what --allow takes")
    before, after = _newest(old), _newest(new)
    matched = _matched(before, after)
    if not matched:
        raise UsageError(
            f"no cell of {new_path!r} is also in {old_path!r} (the same workload, size, strategy and ranks); "
            "give two results of one suite"
        )
    pairs = [Pair(old=before[a], new=after[b], reference=old_path, same_strategy=True, turns=turns) for a, b in matched]
    _refuse(pairs, allow)
    cells = list(judged(pairs, margin))
    shared = _shared([cell.differs for cell in cells])
    alone = [key for key in before if key not in {a for a, _ in matched}]
    fresh = [key for key in after if key not in {b for _, b in matched}]
    return Comparison(
        old=old_path,
        new=new_path,
        differs=shared,
        cells=tuple(_without(cell, shared) for cell in cells),
        missing=tuple(_named(before[key][-1]) for key in alone),
        added=tuple(_named(after[key][-1]) for key in fresh),
        notes=() if turns else (_NOT_TOGETHER,),
    )


def _fixed(cell: Cell, by_id: dict[str, RunRecord], budget: Budget | None) -> str:
    """Return the budget at which a group of cells is compared, in words."""
    if budget is not None:
        return f"{_place(cell)}: {budget.sentence}; {cell.strategy} at a global batch of {cell.spec.global_batch_size}"
    spec, batch = cell.spec, cell.spec.global_batch_size or 0
    tokens = f" ({_tokens(cell, by_id)} tokens)" if _tokens(cell, by_id) != batch else ""
    size = f"global batch of {batch} samples{tokens}" if batch else "the workload's own global batch"
    return f"{_place(cell)}: fixed {size} per step, {spec.precision}, accumulation {spec.accumulate}, seed {spec.seed}"


def _at_batches(group: Sequence[Cell]) -> Sequence[Cell]:
    """Return one cell where all have the same global batch, else all of them."""
    return group if len({cell.spec.global_batch_size for cell in group}) > 1 else group[:1]


def _tokens(cell: Cell, by_id: dict[str, RunRecord]) -> int:
    per_sample = by_id[cell.run_ids[-1]].launch.get("units_per_sample", 1)
    return (cell.spec.global_batch_size or 0) * (per_sample if isinstance(per_sample, int) else 1)


def _against(group: Sequence[Cell], named: str, by_id: dict[str, RunRecord]) -> Iterator[Pair]:
    references = [cell for cell in group if cell.strategy == named]
    for cell in group:
        same = [one for one in references if one.spec.world_size == cell.spec.world_size]
        found = (same or references[:1] or [cell])[0]
        old, new = ([by_id[i] for i in one.run_ids] for one in (found, cell))
        ranks = found.spec.world_size
        called = f"{found.strategy} at {ranks} rank{'s' if ranks > 1 else ''}"
        yield Pair(old=old, new=new, reference="" if cell is found else called)


def _newest(records: Sequence[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the launches of each cell by (spec_id, machine), of the software that measured it last."""
    found: dict[tuple[str, str], list[RunRecord]] = {}
    for group in by_cell(records):
        key = (group[-1].spec_id, group[-1].environment.fingerprint)
        if key not in found or max(r.id for r in group) > max(r.id for r in found[key]):
            found[key] = group
    return found


def _matched(
    old: dict[tuple[str, str], list[RunRecord]], new: dict[tuple[str, str], list[RunRecord]]
) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Return which cell of `old` each of `new` is held against: the same one, else the only one that is alike."""
    found = [(key, key) for key in new if key in old]
    left_old, left_new = ([key for key in side if key not in {a for a, _ in found}] for side in (old, new))
    for key in left_new:
        spec = new[key][-1].spec
        same = [one for one in left_old if one[0] == key[0]]
        near = same or [one for one in left_old if alike(old[one][-1].spec) == alike(spec)]
        rivals = [one for one in left_new if alike(new[one][-1].spec) == alike(spec)]
        if len(near) == 1 and (same or len(rivals) == 1):
            found.append((near[0], key))
            left_old.remove(near[0])
    order = list(new)
    return sorted(found, key=lambda pair: order.index(pair[1]))


def _refuse(pairs: Sequence[Pair], allow: Sequence[str]) -> None:
    found: dict[Differs, int] = {}
    for pair in pairs:
        for one in differs(pair.old, pair.new):
            if one.forbids and one.forbids not in allow:
                found[one] = found.get(one, 0) + 1
    if not found:
        return
    told = "; ".join(f"{one.what} {one.old} against {one.new}" for one in list(found)[:4])
    words = " ".join(f"--allow {word}" for word in dict.fromkeys(one.forbids for one in found))
    raise CheckFailed(
        f"these results cannot be compared: {told}; measure both alike, or say that this is meant with {words}"
    )


def _shared(all_differs: Sequence[Sequence[Differs]]) -> tuple[Differs, ...]:
    first = all_differs[0] if all_differs else ()
    return tuple(one for one in first if all(one in other for other in all_differs))


def _without(cell: CellCompared, shared: Sequence[Differs]) -> CellCompared:
    return msgspec.structs.replace(cell, differs=tuple(one for one in cell.differs if one not in shared))


def _place(one: RunRecord | Cell) -> str:
    return f"{one.spec.workload}/{one.spec.size}"


def _named(record: RunRecord) -> str:
    return f"{record.spec.strategy} at {record.spec.world_size} on {_place(record)}"
