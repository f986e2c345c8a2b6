"""Tests of live progress: what a terminal shows, and that nothing else gets more than failures."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from parbench.cli.progress import LiveProgress, doing, line_of
from parbench.events import Event

ROUND = Event(
    kind="round",
    case="ddp at 2 ranks",
    cell=1,
    done=1,
    total=4,
    step=20,
    steps=100,
    median_s=0.00123,
    ci_low_s=0.0012,
    ci_high_s=0.0013,
)


def played(*events: Event, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, markup=False, highlight=False)
    with LiveProgress(console) as progress:
        for event in events:
            progress(event)
    return out.getvalue()


def test_doing_says_case_step_median_and_interval() -> None:
    assert doing(ROUND) == "ddp at 2 ranks: step 20/100, 1.23 ms [1.20, 1.30]"
    assert doing(Event(kind="phase", case="ddp", phase="warm-up")) == "ddp: warm-up"


def test_terminal_shows_progress() -> None:
    assert "case 2/4" in played(Event(kind="plan", total=4), ROUND, terminal=True)


def test_file_gets_failures_and_notes_only() -> None:
    failed = Event(kind="case", case="ddp", done=2, total=4, message="rank 1 \x1b[31mdied")
    note = Event(kind="note", message="[red]resumed[/red]")
    text = played(Event(kind="plan", total=4), ROUND, failed, note, Event(kind="case", case="x"), terminal=False)
    assert text == "ddp: rank 1 \\x1b[31mdied\n[red]resumed[/red]\n"


def test_lines_hold_no_line_breaks() -> None:
    assert "\n" not in line_of(Event(kind="note", message="a\nb"))


def test_terminal_shows_every_case_under_way_with_its_median_and_interval() -> None:
    other = replace(ROUND, case="fsdp at 2 ranks", cell=2, median_s=0.5, ci_low_s=None, ci_high_s=None, step=5)
    text = rendered(ROUND, other, Event(kind="phase", case="ddp at 2 ranks", cell=1, phase="memory", steps=100))
    lines = [line.split() for line in text.splitlines()]
    assert ["fsdp", "at", "2", "ranks", "5/100", "500", "ms"] in lines
    # It is in another phase now and keeps what is known of it.
    assert ["ddp", "at", "2", "ranks", "memory", "20/100", "1.23", "ms", "[1.20,", "1.30]"] in lines
    assert "ddp" not in rendered(ROUND, Event(kind="case", cell=1, total=4, done=2))


def test_warnings_scroll_by_once_on_a_terminal_and_not_into_a_file() -> None:
    warned = Event(kind="warning", case="ddp", message="two_speeds: \x1b[2Jsteps have two speeds")
    text = played(warned, replace(warned, case="fsdp"), terminal=True)
    assert text.count("two_speeds: \\x1b[2Jsteps have two speeds") == 1
    assert played(warned, terminal=False) == ""


def rendered(*events: Event) -> str:
    """Return what a terminal shows after the events."""
    out = io.StringIO()
    progress = LiveProgress(Console(file=io.StringIO(), force_terminal=True, width=120))
    for event in events:
        progress(event)
    Console(file=out, width=120, markup=False, highlight=False).print(progress)
    return out.getvalue()
