"""The terminal report is a table of a sweep, one line per cell, and below it what a reader must know to believe it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.comparable import REFERENCE, grouped
from parbench.metrics import Cell
from parbench.record import RunRecord, Warned
from parbench.report.breakdown import breakdown_line
from parbench.report.rows import (
    SPEED,
    Row,
    group_name,
    has_interval,
    leaders,
    machine_of,
    named,
    row,
    step_time,
)
from parbench.report.words import several, visible

_COLUMNS = (
    "workload",
    "strategy",
    "ranks",
    "step time",
    SPEED,
    "throughput",
    "agreement",
    "final loss",
    "held-out acc.",
    "startup",
)
_RIGHT = frozenset({"ranks", SPEED, "throughput", "final loss", "held-out acc.", "startup"})
# On a narrow terminal, columns go in this order; what is left always tells which, how fast and whether it is true.
_DROPPED_FIRST = ("startup", "final loss", "held-out acc.", "throughput", "ranks")
_STYLES: Mapping[str, str] = {"ranked": "", "unranked": "dim", "failed": "red"}


def sweep_table(cells: Sequence[Cell], records: Sequence[RunRecord], *, width: int = 120) -> RenderableType:
    """Lay a sweep out for a terminal.

    Args:
        cells: of the sweep, in order.
        records: the launches behind them.
        width: columns of the terminal; unimportant columns are left out where it is narrow.

    Returns:
        Something that rich prints; it holds no markup, so names cannot change it.
    """
    if not cells:
        return Text("no cells: nothing was measured")
    by_id = {record.id: record for record in records}
    launches = {id(cell): [by_id[one] for one in cell.run_ids if one in by_id] for cell in cells}
    groups = grouped(cells)
    rows = [[row(cell, group, group_name(cell, cells), launches[id(cell)]) for cell in group] for group in groups]
    footnotes = _numbered(one for group in rows for one in group)
    table, left_out = _table(rows, footnotes, width)
    below = [
        _legend(cells, rows, left_out),
        *(Text(f"[{k}] {sentence}") for sentence, k in footnotes.items()),
        *_failures(cells, launches),
        *_verdicts(groups, cells),
        *_where(cells, launches),
        *_sharing(cells, records),
        *_warnings(records),
    ]
    return Group(_title(records), table, *below)


def _table(rows: Sequence[Sequence[Row]], footnotes: Mapping[str, int], width: int) -> tuple[Table, list[str]]:
    flat = [one for group in rows for one in group]
    used = [column for column in _COLUMNS if any(one.texts.get(column) for one in flat)]
    texts = [{column: _cell_text(one, column, footnotes) for column in used} for one in flat]
    kept = _fitting(used, texts, width)
    # Nothing is cut off: what still does not fit is folded into a second line.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in kept:
        table.add_column(
            Text(column),
            justify="right" if column in _RIGHT else "left",
            overflow="fold",
            no_wrap=column in ("ranks", "step time", SPEED),
        )
    cells = iter(texts)
    for group in rows:
        for k, one in enumerate(group):
            found = next(cells)
            shown = [found[column] if column != "workload" or k == 0 else "" for column in kept]
            table.add_row(*map(Text, shown), style=_STYLES[one.state], end_section=k == len(group) - 1)
    return table, [column for column in used if column not in kept]


def _fitting(used: Sequence[str], texts: Sequence[Mapping[str, str]], width: int) -> list[str]:
    need = {c: max(cell_len(c), *(cell_len(one[c]) for one in texts)) + 2 for c in used}
    kept = list(used)
    for column in _DROPPED_FIRST:
        if sum(need[one] for one in kept) <= width:
            break
        # One number of ranks for all is in no danger of being misread, several are.
        if column in kept and not (column == "ranks" and len({one["ranks"] for one in texts}) > 1):
            kept.remove(column)
    return kept


def _cell_text(one: Row, column: str, footnotes: Mapping[str, int]) -> str:
    marks = "".join(f" [{footnotes[sentence]}]" for sentence in one.footnotes.get(column, ()))
    return one.texts.get(column, "") + marks


def _numbered(rows: Iterable[Row]) -> dict[str, int]:
    sentences = dict.fromkeys(s for one in rows for column in _COLUMNS for s in one.footnotes.get(column, ()))
    return {sentence: k for k, sentence in enumerate(sentences, start=1)}


def _title(records: Sequence[RunRecord]) -> Text:
    suites = several(dict.fromkeys(visible(one.suite, 60) for one in records))
    machines = dict.fromkeys(machine_of(one) for one in records)
    backends = dict.fromkeys(visible(one.chosen["backend"].value) for one in records if "backend" in one.chosen)
    parts = [suites, *machines, several(backends)]
    return Text(" · ".join(filter(None, parts)), style="bold")


def _legend(cells: Sequence[Cell], rows: Sequence[Sequence[Row]], left_out: Sequence[str]) -> Text:
    counts = sorted({step_time(cell).n for cell in cells if step_time(cell).n})
    parts = []
    if counts:
        rounds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        parts.append(f"step time: median of n = {rounds} rounds [95 % interval]")
    if any(one.texts.get(SPEED) for group in rows for one in group):
        parts.append(f"{SPEED}: {REFERENCE}'s step time / this one, ≈ no clear difference")
    if any(one.texts.get("agreement", "")[:1] in "✓✗" for group in rows for one in group if one.texts.get("agreement")):
        parts.append("agreement: largest difference from one process")
    if left_out:
        parts.append(f"left out for width: {', '.join(left_out)}")
    return Text("; ".join(parts), style="dim")


def _failures(cells: Sequence[Cell], launches: Mapping[int, Sequence[RunRecord]]) -> Iterator[Text]:
    for cell in cells:
        for record in launches[id(cell)]:
            if record.status == "complete":
                continue
            reason = record.reason or (record.failure.message if record.failure else "no reason given")
            place = f"{visible(cell.spec.workload, 40)}/{visible(cell.spec.size, 20)}"
            which = f", launch {record.repeat + 1} of {record.spec.repeats}" if record.spec.repeats > 1 else ""
            yield Text(f"{record.status}: {named(cell)} on {place}{which}: {visible(reason)}", style="red")


def _verdicts(groups: Sequence[Sequence[Cell]], cells: Sequence[Cell]) -> Iterator[Text]:
    for group in groups:
        best, rivals = (found := leaders(group))[:1], found[1:]
        if not best:
            continue
        name = group_name(group[0], cells)
        if rivals:
            listed = several(named(cell) for cell in found)
            known = all(has_interval(step_time(cell)) for cell in found)
            why = "their intervals overlap" if known else "too few rounds for an interval: more --steps or --repeats"
            yield Text(f"{name}: no clear winner between {listed} ({why})")
        else:
            yield Text(f"{name}: fastest is {named(best[0])}", style="bold")


def _where(cells: Sequence[Cell], launches: Mapping[int, Sequence[RunRecord]]) -> Iterator[Text]:
    told = [(cell, breakdown_line(launches[id(cell)][-1])) for cell in cells if launches[id(cell)]]
    found = [(cell, line) for cell, line in told if line is not None]
    if found:
        yield Text("a traced step of the slowest rank:", style="dim")
    for cell, line in found:
        yield Text(f"  {visible(cell.spec.workload, 40)} {named(cell)}: {line}", style="dim")


def _sharing(cells: Sequence[Cell], records: Sequence[RunRecord]) -> Iterator[Text]:
    most = max(cell.spec.world_size for cell in cells)
    on_cpu = [one for one in records if "device" in one.chosen and one.chosen["device"].value.startswith("cpu")]
    if most < 2 or not on_cpu:
        return
    cores = on_cpu[0].environment.facts.get("cores")
    shared = f"its {visible(cores, 10)} cores" if cores else "its cores"
    yield Text(f"up to {most} ranks on one machine share {shared}: this compares strategies here, not how they scale")


def _warnings(records: Sequence[RunRecord]) -> Iterator[Text]:
    about: dict[Warned, list[str]] = {}
    for record in records:
        for warned in record.warnings:
            about.setdefault(warned, []).append(visible(record.spec.strategy, 40))
    for warned, strategies in about.items():
        who = several(dict.fromkeys(strategies))
        advice = f" → {visible(warned.advice)}" if warned.advice else ""
        yield Text(f"warning {visible(warned.code, 40)} ({who}): {visible(warned.message)}{advice}", style="yellow")
