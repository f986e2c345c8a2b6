"""The picture of a schedule for a terminal: one row per rank, one cell per unit of time, idle cells visible.

rank 0  F0 F1 F2 .  .  .  B0--- F3 ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from rich.console import Group, RenderableType
from rich.text import Text

from parbench.report import schedule_words as words
from parbench.report.schedule_facts import ScheduleFacts
from parbench.report.words import number
from parbench.schedule import Kind
from parbench.timeline import Timed

_STYLES: Mapping[Kind, str] = {
    "F": "white on blue",
    "B": "black on green",
    "I": "black on cyan",
    "W": "white on magenta",
}
_IDLE, _GOES_ON = ".", "-"


def schedule_picture(facts: ScheduleFacts, *, width: int = 120) -> RenderableType:
    """Draw a schedule.

    Args:
        facts: what to draw.
        width: columns of the terminal; what does not fit is drawn without the numbers of micro-batches, and if need be
            with several units of time per column.

    Returns:
        Something that rich prints; it is plain ASCII but for its colours, and holds no markup.
    """
    head = len(_head(facts.ranks - 1, facts))
    cell = 1 + max(len(facts.label(one.action)) for line in facts.lines for one in line)
    units = int(facts.length / facts.unit)
    below = [words.legend(facts), words.costs(facts), *words.findings(facts), words.source(facts)]
    if head + units * cell <= width + 1:
        rows = [_row(line, rank, facts, cell) for rank, line in enumerate(facts.lines)]
    else:
        columns = max(1, min(units, width - head))
        rows = [_narrow_row(line, rank, facts, columns) for rank, line in enumerate(facts.lines)]
        each = "one unit" if columns == units else f"{number(units / columns)} of {units} units"
        below.insert(0, f"drawn without micro-batches for width; a column is {each} of time")
    return Group(Text(words.title(facts), style="bold"), *rows, *map(Text, below))


def _head(rank: int, facts: ScheduleFacts) -> str:
    return f"rank {rank:>{len(str(facts.ranks - 1))}}  "


def _row(line: Sequence[Timed], rank: int, facts: ScheduleFacts, cell: int) -> Text:
    """Draw a rank with the micro-batch of every action."""
    row = Text(_head(rank, facts), no_wrap=True)
    idle = _IDLE.ljust(cell)
    for start, one in _in_turn(line):
        row.append(idle * int((one.start - start) / facts.unit), style="dim")
        whole = cell * int((one.end - one.start) / facts.unit)
        row.append(facts.label(one.action).ljust(whole - 1, _GOES_ON), style=_STYLES[one.action.kind])
        row.append(" ")
    row.append(idle * int((facts.length - line[-1].end) / facts.unit), style="dim")
    row.rstrip()
    return row


def _narrow_row(line: Sequence[Timed], rank: int, facts: ScheduleFacts, columns: int) -> Text:
    """Draw a rank by letters: each column is what the rank does in the middle of the column's time."""
    row = Text(_head(rank, facts), no_wrap=True, overflow="crop")
    waiting = iter(line)
    one: Timed | None = next(waiting)
    for column in range(columns):
        middle = facts.length * (2 * column + 1) / (2 * columns)
        while one is not None and one.end <= middle:
            one = next(waiting, None)
        if one is None or middle < one.start:
            row.append(_IDLE, style="dim")
        else:
            row.append(one.action.kind, style=_STYLES[one.action.kind])
    return row


def _in_turn(line: Sequence[Timed]) -> Iterator[tuple[Fraction, Timed]]:
    """Yield each action with the time at which the rank became free for it."""
    free = Fraction(0)
    for one in line:
        yield free, one
        free = one.end
