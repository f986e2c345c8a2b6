"""Measured cells: cells with the launches behind them, and what every row made of one says of where it is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parbench.comparable import grouped
from parbench.metrics import Cell
from parbench.record import Metric, RunRecord
from parbench.report.rows import machine_of, namer
from parbench.report.words import distinct

if TYPE_CHECKING:
    import pandas

Value = str | int | float | bool | None
Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One cell and its complete launches.

    Attributes:
        cell: with its metrics.
        group: the name of those it is compared with.
        called: its strategy, as figures call it.
        label: the same with its ranks, where several numbers of them are drawn.
        launches: the records.
    """

    cell: Cell
    group: str
    called: str
    label: str
    launches: tuple[RunRecord, ...]

    def metric(self, name: str) -> Metric | None:
        """Return a metric that has a value."""
        found = self.cell.metrics.get(name)
        return found if found is not None and found.value is not None else None

    @property
    def facts(self) -> Row:
        """What every row of it begins with."""
        last = self.launches[-1]
        commit = last.environment.facts.get("commit")
        return {
            "group": self.group,
            "label": self.label,
            "strategy": self.called,
            "ranks": self.cell.spec.world_size,
            "machine": machine_of(last),
            "commit": None if commit is None else str(commit)[:10],
            "ranked": self.cell.rankable,
        }


def measured(cells: Sequence[Cell], records: Sequence[RunRecord]) -> Iterator[MeasuredCell]:
    """Yield the cells that have a complete launch, by group."""
    by_id = {record.id: record for record in records}
    name = namer(cells)
    several_ranks = len({cell.spec.world_size for cell in cells if cell.spec.world_size > 1}) > 1
    short = short_names(cell.strategy for cell in cells)
    for group in grouped(cells):
        for cell in group:
            launches = [by_id[one] for one in cell.run_ids if one in by_id and by_id[one].status == "complete"]
            if launches:
                called = short[cell.strategy]
                ranks = cell.spec.world_size
                label = f"{called}, {ranks} rank{'' if ranks == 1 else 's'}" if several_ranks else called
                yield MeasuredCell(cell, name(cell), called, label, tuple(launches))


def short_names(strategies: Iterable[str]) -> dict[str, str]:
    """Return what figures call strategies: no two alike."""
    return distinct(strategies, 40)


def frame_of(rows: Sequence[Mapping[str, Value]], columns: Sequence[str]) -> pandas.DataFrame:
    """Return rows as a frame that has `columns` even without a row."""
    import pandas

    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=list(columns))
