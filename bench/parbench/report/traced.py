"""Traces of a report: of a few runs, what their ranks did on one clock, and what they sent each other in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parbench.errors import ParbenchError
from parbench.record import RunRecord
from parbench.report.words import visible
from parbench.store import Run
from parbench.tracing.clocks import aligned
from parbench.tracing.folder import TRACE, opened
from parbench.tracing.spans import RankTrace

# Each is read whole; a page shows the first ones.
MOST_TRACED = 4


def traces_of(runs: Sequence[Run]) -> dict[str, Sequence[RankTrace]]:
    """Return what the ranks of the first runs with several of them did, by what the run is called."""
    found: dict[str, Sequence[RankTrace]] = {}
    for name, run in _named(runs):
        if len(found) == MOST_TRACED:
            break
        if not (run.folder / TRACE).is_dir():
            continue
        try:
            found[name] = aligned(opened(run.folder).traces).traces
        except ParbenchError:
            continue  # `parbench trace` says why; a report is made of what there is
    return found


def sent_of(runs: Sequence[Run]) -> Mapping[str, Sequence[Sequence[float]]]:
    """Return bytes[from][to] of a traced step, by what the run is called."""
    found = {}
    for name, run in _named(runs):
        traced = run.record.traced
        if traced is not None and traced.steps and any(map(any, traced.sent)):
            found[name] = [[size / traced.steps for size in line] for line in traced.sent]
    return found


def _named(runs: Sequence[Run]) -> Iterator[tuple[str, Run]]:
    seen: set[str] = set()
    for run in runs:
        name = _name(run.record)
        if run.record.spec.world_size > 1 and name not in seen:
            seen.add(name)
            yield name, run


def _name(record: RunRecord) -> str:
    spec = record.spec
    return visible(f"{spec.workload}/{spec.size}, {spec.strategy} at {spec.world_size} ranks", 120)
