"""The verdict in sentences: which strategy wins on what, by how much, at what price, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parbench.comparable import grouped
from parbench.comparison import CellCompared, Compared
from parbench.metrics import Cell
from parbench.report.rows import group_name, has_interval, leaders, named, step_time
from parbench.report.sources import Source
from parbench.report.words import DASH, TIMES, number, several, visible

_MOST_GROUPS = 8
_PER_CENT = 1.1


def verdict(source: Source) -> list[str]:
    """Return a paragraph, sentence by sentence."""
    if not source.cells:
        return ["Nothing has been measured here yet."]
    groups = grouped(source.cells)
    compared = {one.new_runs[-1]: one for one in (source.comparison.cells if source.comparison else ()) if one.new_runs}
    found = [sentence for group in groups[:_MOST_GROUPS] for sentence in _of_group(group, source.cells, compared)]
    if len(groups) > _MOST_GROUPS:
        found.append(f"{len(groups) - _MOST_GROUPS} more groups of comparable cells are in the table.")
    return [*found, *_links(source), *_unranked(source.cells), *_failed(source)]


def heading(source: Source) -> str:
    """Return what is compared: the suites, the fixed budget and the kind of scaling."""
    if not source.records:
        return "No results"
    suites = several(dict.fromkeys(visible(one.suite, 40) for one in source.records[:1000]))
    batches = sorted({cell.spec.global_batch_size for cell in source.cells if cell.spec.global_batch_size})
    amount = "the workload's own global batch"
    if batches:
        sizes = several(map(str, batches)) if len(batches) <= 3 else f"{batches[0]} to {batches[-1]}"
        amount = f"fixed global batch{'es' if len(batches) > 1 else ''} of {sizes} samples per step"
    return f"{suites}: {amount}, {_scaling(source)}"


def _scaling(source: Source) -> str:
    kinds = dict.fromkeys(one.kind for one in (source.comparison.scaling if source.comparison else ()))
    ranks = sorted({cell.spec.world_size for cell in source.cells})
    spread = f"{ranks[0]} to {ranks[-1]} ranks" if len(ranks) > 1 else f"{ranks[0]} rank{'s' if ranks[0] > 1 else ''}"
    return f"{several(kinds)} scaling over {spread}" if kinds else f"no scaling, {spread}"


def _of_group(group: Sequence[Cell], cells: Sequence[Cell], compared: dict[str, CellCompared]) -> Iterator[str]:
    found, place = leaders(group), _place(group[0], cells)
    if not found:
        if any(cell.launches for cell in group):
            yield f"On {place} fewer than two strategies can be ranked."
        return
    best = found[0]
    if len(found) > 1:
        known = all(has_interval(step_time(cell)) for cell in found)
        why = "their intervals overlap" if known else "too few rounds for an interval"
        yield f"On {place} there is no clear winner between {several(map(named, found))}: {why}."
        return
    against = compared.get(best.run_ids[-1])
    if against is None or not against.reference:  # the reference itself is the fastest
        yield f"On {place} {named(best)} is the fastest.{_next_best(group, best)}"
        return
    metrics = {one.metric: one for one in against.metrics}
    faster = _times_faster(metrics.get("step_time_s"))
    prices = [price for one in metrics.values() if (price := _price(one))]
    told = f"; it {several(prices)}" if prices else ""
    yield f"On {place} {named(best)} trains {faster} per step than {visible(against.reference, 60)}{told}."


def _place(cell: Cell, cells: Sequence[Cell]) -> str:
    """Return the group in words, and its links where all cells have the same."""
    name = group_name(cell, cells)
    links = cell.spec.network
    return f"{name} over links of {visible(links, 60)}" if links and "network" not in name else name


def _next_best(group: Sequence[Cell], best: Cell) -> str:
    second = min(
        (cell for cell in group if cell.rankable and cell is not best), key=lambda cell: step_time(cell).value or 0.0
    )
    a, b = step_time(best).value, step_time(second).value
    if not a or not b:
        return ""
    return f" The next, {named(second)}, takes {number(b / a)}{TIMES} as long."


def _times_faster(one: Compared | None) -> str:
    if one is None or not one.ratio:
        return "faster"
    ends = f" ({number(1 / one.high)}{DASH}{number(1 / one.low)})" if one.low and one.high else ""
    return f"{number(1 / one.ratio)}{TIMES}{ends} faster"


def _price(one: Compared) -> str:
    """Return what another metric gains or loses, where that is known."""
    if one.verdict not in ("better", "worse") or one.old is None or one.new is None:
        return ""
    if one.metric == "held_out_accuracy":
        points = abs(100 * (one.new - one.old))
        return f"{'gains' if one.verdict == 'better' else 'loses'} {number(points, 2)} points of accuracy"
    what = {"peak_memory_bytes": "memory of a rank", "energy_j_per_step": "energy per step"}.get(one.metric)
    if what is None or not one.ratio or 1 / _PER_CENT < one.ratio < _PER_CENT:
        return ""
    return f"takes {number(one.ratio)}{TIMES} the {what}"


def _links(source: Source) -> Iterator[str]:
    from parbench.report.data import links_frame
    from parbench.report.figures.links import crossings, sentence

    frame = links_frame(source.cells, source.records)
    if not len(frame):
        return
    for group, part in frame.groupby("group", sort=False):
        for one in crossings(part):
            yield f"On {group}, {sentence(one)}."


def _unranked(cells: Sequence[Cell]) -> Iterator[str]:
    names = list(dict.fromkeys(visible(cell.strategy, 40) for cell in cells if cell.launches and not cell.rankable))
    if names:
        listed = several(names) if len(names) <= 6 else f"{', '.join(names[:6])} and {len(names) - 6} more"
        yield f"{listed} {'is' if len(names) == 1 else 'are'} shown and not ranked (see the notes)."


def _failed(source: Source) -> Iterator[str]:
    failed = sum(not cell.launches for cell in source.cells)
    if failed == len(source.cells):
        yield f"No cell was measured: {'the only one' if failed == 1 else f'all {failed}'} ended early."
    elif failed:
        yield f"{failed} of {len(source.cells)} cells ended early and {'has' if failed == 1 else 'have'} no numbers."
