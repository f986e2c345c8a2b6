"""What a page says, before it is laid out: plain texts, one list per section."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parbench import __version__
from parbench.record import RunRecord, Warned
from parbench.report.catalogue import ENTRIES, drawn
from parbench.report.data.measured import short_names
from parbench.report.figures.canvas import Look, facts_of
from parbench.report.figures.colours import palette
from parbench.report.figures.saving import for_a_page
from parbench.report.page.tables import PageTable, page_table
from parbench.report.rows import machine_of
from parbench.report.sentences import heading, verdict
from parbench.report.sources import Source
from parbench.report.words import several, visible

# A page with more figures of one kind is no longer looked at; `--figure` makes them all.
_MOST_GROUPS = 4

__all__ = ["Page", "Picture", "facts_of", "page_of"]

_MOST_WARNINGS, _MOST_SUITES = 60, 12
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure inside the page: its data, what it shows, and what a reader hears who sees none."""

    data: str
    title: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page.

    Attributes:
        title: what is compared, at which budget.
        machines: where it was measured.
        verdict: sentences.
        budgets: what the strategies of each workload have in common.
        table: a row per cell.
        pictures: the figures.
        warnings: code, whom it is about, message and advice.
        why: what accounts for differences, and notes.
        environment: facts of each machine.
        commands: what repeats the measurement.
        source: what the page was made of.
        version: of parbench.
        watched: seconds between two looks at the file; 0 where nobody rewrites it.
    """

    title: str
    machines: str
    verdict: list[str]
    budgets: list[str]
    table: PageTable
    pictures: list[Picture]
    warnings: list[tuple[str, str, str, str]]
    why: list[str]
    environment: list[tuple[str, list[tuple[str, str]]]]
    commands: list[str]
    source: str
    version: str
    watched: float


def page_of(source: Source, beside: Path, *, style: str | None = None, watched: float = 0.0) -> Page:
    """Return what a page about `source` says.

    Args:
        source: the records.
        beside: the folder that the page will be in.
        style: names a style of matplotlib for the figures.
        watched: seconds after which the page looks whether it has been rewritten; 0 for never.
    """
    from parbench.report.lines import below

    comparison = source.comparison
    look = Look(style=style or {}, marks=palette(short_names(cell.strategy for cell in source.cells).values()))
    return Page(
        title=heading(source),
        machines=several(list(dict.fromkeys(machine_of(one) for one in source.records))[:4]),
        verdict=verdict(source),
        budgets=[visible(one, _LONGEST) for one in (comparison.fixed if comparison else ())],
        table=page_table(source, beside),
        pictures=list(_pictures(source, look)),
        warnings=list(_warnings(source.records)),
        why=[*(list(below(comparison)) if comparison else []), *_left_out(source)][:200],
        environment=list(_environments(source.records)),
        commands=list(_commands(source)),
        source=visible(source.path, 400),
        version=__version__,
        watched=watched,
    )


def _pictures(source: Source, look: Look) -> Iterator[Picture]:
    for entry in ENTRIES:
        for one in drawn(entry, source, look, most=_MOST_GROUPS):
            caption = " ".join(one.figure.get_supxlabel().split())
            title = f"{one.shows[0].upper()}{one.shows[1:]}{f', {one.group}' if one.group else ''}"
            data = base64.b64encode(for_a_page(one.figure, look)).decode()
            yield Picture(data=data, title=title, alt=f"{title}. {caption} The table has the numbers.")


def _warnings(records: list[RunRecord]) -> Iterator[tuple[str, str, str, str]]:
    about: dict[Warned, list[str]] = {}
    for record in records:
        for warned in record.warnings:
            about.setdefault(warned, []).append(visible(record.spec.strategy, 40))
    for warned, strategies in list(about.items())[:_MOST_WARNINGS]:
        who = list(dict.fromkeys(strategies))
        named = several(who) if len(who) <= 6 else f"{', '.join(who[:6])} and {len(who) - 6} more"
        yield visible(warned.code, 40), named, visible(warned.message, _LONGEST), visible(warned.advice, _LONGEST)
    if len(about) > _MOST_WARNINGS:
        yield "more", "", f"{len(about) - _MOST_WARNINGS} other warnings are in the records", ""


def _left_out(source: Source) -> Iterator[str]:
    yield from (visible(note, _LONGEST) for note in source.notes)
    if source.problems:
        yield f"{len(source.problems)} records could not be read and are left out."
        yield from (visible(problem.sentence, _LONGEST) for problem in source.problems[:20])
    yield from (visible(problem.sentence, _LONGEST) for problem in source.unread[:20])


def _environments(records: list[RunRecord]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    newest = {(one.environment.fingerprint, one.environment.software): one for one in records}
    for record in list(newest.values())[-4:]:
        found = record.environment
        facts = {**found.facts, **found.variables, "machine": found.fingerprint, "software": found.software}
        shown = [(visible(name, 60), visible(value, 200)) for name, value in facts.items() if value is not None]
        yield machine_of(record), shown


def _commands(source: Source) -> Iterator[str]:
    """Yield what measures the same again: every record holds the suite it belongs to."""
    newest = {run.record.suite: run for run in source.runs}
    commits = dict.fromkeys(str(run.record.environment.facts.get("commit") or "") for run in source.runs)
    yield from (f"git checkout {shlex.quote(visible(one, 60))}" for one in list(commits)[-1:] if one)
    for run in list(newest.values())[:_MOST_SUITES]:
        yield f"parbench run {shlex.quote(visible(run.folder / 'record.json', 400))}"
    yield f"parbench report {shlex.quote(visible(source.path, 400))}"
