"""The table of a page: a row per cell, every number with its quality, its reason and the value it is sorted by."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from parbench.comparable import grouped
from parbench.metrics import Cell
from parbench.record import Metric, RunRecord
from parbench.report.rows import SPEED, Row, namer, row, told
from parbench.report.sources import Source
from parbench.report.words import DASH, visible

# Columns of numbers beside those that the terminal has, and the metrics they are of.
_MORE: Mapping[str, str] = {
    "peak memory": "peak_memory_bytes",
    "sent per step": "traffic_bytes_per_step",
    "energy per step": "energy_j_per_step",
    "MFU": "mfu",
}
_SORTED_BY: Mapping[str, str] = {
    "step time": "step_time_s",
    "throughput": "samples_per_s",
    "final loss": "final_loss",
    "held-out acc.": "held_out_accuracy",
    **_MORE,
}
COLUMNS = (
    *("strategy", "ranks", "step time", SPEED, "workload", "throughput", "peak memory", "sent per step"),
    *("energy per step", "MFU", "agreement", "final loss", "held-out acc.", "status", "record", "trace"),
)
NUMBERS = frozenset({*_SORTED_BY, "ranks", SPEED})
# Shown even where nothing of it was measured.
_ALWAYS = frozenset({"workload", "strategy", "ranks", "step time", "status", "record"})
_LONGEST_REASON = 400
_TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One field of the table.

    Attributes:
        text: what it says.
        sort: what it is sorted by: a number, or the text itself.
        notes: numbers of the sentences below the table that belong to it.
        reason: the same sentences, for whoever points at it.
        href: where it leads.
    """

    text: str
    sort: str
    notes: tuple[int, ...] = ()
    reason: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """All of it: headings, a row of entries per cell with its state, and the sentences that entries refer to."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    notes: tuple[str, ...]


def page_table(source: Source, beside: Path) -> PageTable:
    """Return the table.

    Args:
        source: the records.
        beside: the folder of the page, from which links lead to records.
    """
    by_id = {record.id: record for record in source.records}
    folders = {run.record.id: run.folder for run in source.runs}
    notes: dict[str, int] = {}
    found: list[tuple[str, dict[str, Entry]]] = []
    name = namer(source.cells)
    for group in grouped(source.cells):
        for cell in group:
            records = [by_id[one] for one in cell.run_ids if one in by_id]
            told_row = row(cell, group, name(cell), records)
            fields = dict(_fields(cell, told_row, notes))
            fields |= dict(_ends(cell, records, folders, beside, notes))
            found.append((told_row.state, fields))
    used = [name for name in COLUMNS if name in _ALWAYS or any(_says(fields.get(name)) for _, fields in found)]
    empty = Entry(text=DASH, sort="")
    return PageTable(
        columns=tuple(used),
        rows=tuple((state, tuple(fields.get(name, empty) for name in used)) for state, fields in found),
        notes=tuple(notes),
    )


def _says(field: Entry | None) -> bool:
    return field is not None and field.text not in ("", DASH)


def _fields(cell: Cell, line: Row, notes: dict[str, int]) -> Iterator[tuple[str, Entry]]:
    texts, sentences = dict(line.texts), dict(line.footnotes)
    if cell.launches:
        for column, name in _MORE.items():
            if name in cell.metrics:
                texts[column], sentences[column] = told(column, cell.metrics[name])
    for column, text in texts.items():
        if column not in COLUMNS:
            continue
        about = tuple(visible(one, _LONGEST_REASON) for one in sentences.get(column, ()))
        numbers = tuple(notes.setdefault(one, len(notes) + 1) for one in about)
        sort = _sort(column, cell.metrics) if column in _SORTED_BY else _number_in(text, column)
        yield column, Entry(text=text or DASH, sort=sort, notes=numbers, reason="; ".join(about))


def _sort(column: str, metrics: Mapping[str, Metric]) -> str:
    metric = metrics.get(_SORTED_BY[column])
    return "" if metric is None or metric.value is None else repr(float(metric.value))


def _number_in(text: str, column: str) -> str:
    return text.removeprefix("≈ ") if column in NUMBERS else text


def _ends(
    cell: Cell, records: Sequence[RunRecord], folders: Mapping[str, Path], beside: Path, notes: dict[str, int]
) -> Iterator[tuple[str, Entry]]:
    status = "/".join(dict.fromkeys(cell.statuses))
    reasons = dict.fromkeys(
        f"{one.status}: {visible(one.reason or (one.failure.message if one.failure else 'no reason given'), 300)}"
        for one in records
        if one.status != "complete"
    )
    numbers = tuple(notes.setdefault(one, len(notes) + 1) for one in reasons)
    yield "status", Entry(text=status, sort=status, notes=numbers, reason="; ".join(reasons))
    if cell.run_ids[-1] in folders:
        if (folders[cell.run_ids[-1]] / _TRACE).is_dir():
            href = link(folders[cell.run_ids[-1]] / _TRACE, beside)
            yield "trace", Entry(text="trace", sort=visible(cell.run_ids[-1], 80), href=f"{href}/")
        href = link(folders[cell.run_ids[-1]] / "record.json", beside)
        yield "record", Entry(text="record", sort=visible(cell.run_ids[-1], 80), href=href)


def link(path: Path, beside: Path) -> str:
    """Return a link to a file, relative to a folder; whatever a name holds is quoted, so that it is a path only."""
    relative = os.path.relpath(path.absolute(), beside.absolute())
    return "./" + quote(os.fsencode(Path(relative).as_posix()), safe="/")
