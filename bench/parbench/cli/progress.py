"""Live progress on stderr: cases with their running medians and intervals, warnings as they come, the time left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from parbench.events import Event
from parbench.report.words import number, visible

# More lines than this would scroll what is above them away.
_MOST_CASES = 12


class LiveProgress:
    """Shows events while a sweep runs; where stderr is no terminal, only failures and notes get a line.

    On a terminal: a bar with the time that is left, and below it the cases under way with their running medians and
    intervals; failures, notes and warnings scroll by above, each once.

    Args:
        console: where to write; stderr unless told otherwise.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._bar = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.fields[cases]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[what]}", markup=False),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None, cases="", what="starting")
        self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
        # Cells alive together advance in turns: what each has done of its steps, and what was last heard of it.
        self._parts: dict[int | None, float] = {}
        self._heard: dict[int | None, Event] = {}
        self._warned: set[str] = set()

    def __enter__(self) -> LiveProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __rich__(self) -> RenderableType:
        """Return what a terminal shows now."""
        return Group(self._bar, cases_table(list(self._heard.values())[-_MOST_CASES:]))

    def __call__(self, event: Event) -> None:
        """Show `event`."""
        if event.kind in ("round", "phase") and event.steps:
            self._parts[event.cell] = min(1.0, event.step / event.steps)
        if event.kind in ("case", "skip"):
            self._parts.pop(event.cell, None)
        self._hear(event)
        if event.message and (event.kind in ("note", "case") or self._is_new(event)):
            self._console.print(Text(line_of(event)), soft_wrap=True)
        if event.kind not in ("note", "warning"):
            self._update(event)

    def _hear(self, event: Event) -> None:
        if event.kind in ("case", "skip"):
            self._heard.pop(event.cell, None)
        elif event.kind in ("round", "phase"):
            before = self._heard.pop(event.cell, None)  # what moves comes last, and keeps its median in other phases
            known = before is not None and event.median_s is None
            self._heard[event.cell] = replace(before, phase=event.phase) if known and before else event

    def _is_new(self, event: Event) -> bool:
        """Whether it is a warning that was not shown yet; those of a file are in the table that follows."""
        if event.kind != "warning" or not self._console.is_terminal or event.message in self._warned:
            return False
        self._warned.add(event.message)
        return True

    def _update(self, event: Event) -> None:
        done = min(event.total, event.done + sum(self._parts.values()))
        self._bar.update(
            self._task,
            total=event.total or None,
            completed=done,
            cases=f"case {min(event.done + 1, event.total)}/{event.total}" if event.total else "",
            what=doing(event),
        )


def cases_table(events: Sequence[Event]) -> Table:
    """Return a line per case under way: what it does, how far it is, its running median with the 95 % interval."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for one in events:
        share = f"{one.step}/{one.steps}" if one.step else ""
        table.add_row(*map(Text, (visible(one.case, 40), visible(one.phase, 20), share, _median(one))))
    return table


def doing(event: Event) -> str:
    """Return what is going on in words: `ddp at 2 ranks: step 20/100, 1.23 ms [1.20, 1.31]`."""
    parts = [f"step {event.step}/{event.steps}" if event.kind == "round" else visible(event.phase, 40)]
    parts.append(_median(event))
    shown = ", ".join(filter(None, parts))
    return ": ".join(filter(None, (visible(event.case, 60), shown)))


def line_of(event: Event) -> str:
    """Return the line that a failure or a note leaves behind."""
    return ": ".join(filter(None, (visible(event.case, 80), visible(event.message, 1000))))


def _median(event: Event) -> str:
    if event.median_s is None:
        return ""
    interval = ""
    if event.ci_low_s is not None and event.ci_high_s is not None:
        interval = f" [{number(event.ci_low_s * 1e3)}, {number(event.ci_high_s * 1e3)}]"
    return f"{number(event.median_s * 1e3)} ms{interval}"
