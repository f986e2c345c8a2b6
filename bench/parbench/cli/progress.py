"""Live progress on stderr: the case, its step, the running median and its interval, and when the sweep will be done."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from parbench.events import Event
from parbench.report.words import number, visible


class LiveProgress:
    """Shows events while a sweep runs; where stderr is no terminal, only failures and notes get a line.

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
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, cases="", what="starting")
        # Cells alive together advance in turns: what each has done of its steps.
        self._parts: dict[int | None, float] = {}

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show `event`."""
        if event.kind in ("round", "phase") and event.steps:
            self._parts[event.cell] = min(1.0, event.step / event.steps)
        if event.kind in ("case", "skip"):
            self._parts.pop(event.cell, None)
        if event.message and event.kind in ("note", "case"):
            self._console.print(Text(line_of(event)), soft_wrap=True)
        if event.kind != "note":
            self._update(event)

    def _update(self, event: Event) -> None:
        done = min(event.total, event.done + sum(self._parts.values()))
        self._bar.update(
            self._task,
            total=event.total or None,
            completed=done,
            cases=f"case {min(event.done + 1, event.total)}/{event.total}" if event.total else "",
            what=doing(event),
        )


def doing(event: Event) -> str:
    """Return what is going on in words: `ddp at 2 ranks: step 20/100, 1.23 ms [1.20, 1.31]`."""
    parts = [f"step {event.step}/{event.steps}" if event.kind == "round" else visible(event.phase, 40)]
    if event.median_s is not None:
        interval = ""
        if event.ci_low_s is not None and event.ci_high_s is not None:
            interval = f" [{number(event.ci_low_s * 1e3)}, {number(event.ci_high_s * 1e3)}]"
        parts.append(f"{number(event.median_s * 1e3)} ms{interval}")
    shown = ", ".join(filter(None, parts))
    return ": ".join(filter(None, (visible(event.case, 60), shown)))


def line_of(event: Event) -> str:
    """Return the line that a failure or a note leaves behind."""
    return ": ".join(filter(None, (visible(event.case, 80), visible(event.message, 1000))))
