"""A Source is all that a report is made of: runs of a folder, their cells, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from parbench.compare import compare_strategies
from parbench.comparison import Comparison
from parbench.errors import UnreadableError, UsageError
from parbench.frames import samples_frame
from parbench.history import History, histories
from parbench.index import newest_runs, summaries
from parbench.metrics import Cell, combine
from parbench.record import RunRecord
from parbench.report.traced import sent_of, traces_of
from parbench.store import STEPS, Problem, Run
from parbench.tracing.spans import RankTrace

if TYPE_CHECKING:
    import pandas

# Of how many runs every step is read.
MOST_SAMPLED = 60


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is reported on.

    Attributes:
        path: where it is from.
        runs: of each cell the newest, with their folders.
        cells: over those.
        comparison: every cell against the reference; None where nothing can be compared.
        problems: what could not be read.
        notes: what was left out.
        benches: files of measured collectives.
        traces: what a run is called -> what its ranks were seen to do, on one clock.
        sent: what a run is called -> bytes[from][to] of a step.
    """

    path: Path
    runs: Sequence[Run]
    cells: Sequence[Cell]
    comparison: Comparison | None
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    benches: Sequence[Path] = ()
    traces: Mapping[str, Sequence[RankTrace]] = field(default_factory=dict)
    sent: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)

    @cached_property
    def records(self) -> list[RunRecord]:
        """The record of every run."""
        return [run.record for run in self.runs]

    @property
    def steps(self) -> pandas.DataFrame:
        """Samples of some runs, the first launch of every cell first: more lines would hide each other."""
        return self._sampled[0]

    @property
    def unread(self) -> Sequence[Problem]:
        """Samples that cannot be read."""
        return self._sampled[1]

    @cached_property
    def _sampled(self) -> tuple[pandas.DataFrame, list[Problem]]:
        problems: list[Problem] = []
        first = {cell.run_ids[0] for cell in self.cells}
        ordered = sorted(self.runs, key=lambda run: run.record.id not in first)
        chosen = [run for run in ordered if (run.folder / STEPS).is_file()][:MOST_SAMPLED]
        return samples_frame(chosen, problems), problems

    @cached_property
    def history(self) -> History | None:
        """All runs of the machine measured last, also those that the cells leave out; None where there is no past."""
        found = histories([one.summary for one in summaries(self.path)[0]]) if self.path.is_dir() else []
        return found[-1] if found and len(found[-1].runs) > 1 else None


def gather(path: Path, *, reference: str | None = None, benches: Sequence[Path] = ()) -> Source:
    """Return what there is under `path`; a folder without records gives an empty report.

    Args:
        path: a record.json, the folder of a run, of a suite or of all results.
        reference: the strategy that others are held against; `single` or the first unless given.
        benches: files of `parbench network bench`.

    Raises:
        UsageError: there is nothing at `path`, or no cell has the reference's strategy.
        UnreadableError: no record there can be read.
    """
    runs, problems, notes = newest_runs(path)
    if problems and not runs:
        raise UnreadableError(f"no record in {str(path)!r} can be read: {problems[0].sentence}")
    return source_of(path, runs, reference=reference, problems=problems, notes=notes, benches=benches)


def source_of(
    path: Path,
    runs: Sequence[Run],
    *,
    reference: str | None = None,
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    benches: Sequence[Path] = (),
    cells: Sequence[Cell] | None = None,
) -> Source:
    """Return the source of runs that are known already, and of their cells if those are."""
    records = [run.record for run in runs]
    comparison = compare_strategies(records, path=str(path), reference=reference) if records else None
    if comparison is None and reference is not None:
        raise UsageError(f"there are no records in {str(path)!r} to hold against {reference!r}; give results")
    return Source(
        path=path,
        runs=runs,
        cells=combine(records) if cells is None else cells,
        comparison=comparison,
        problems=problems,
        notes=notes,
        benches=benches,
        traces=traces_of(runs),
        sent=sent_of(runs),
    )
