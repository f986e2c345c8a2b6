"""The report of time to loss: per workload, what each strategy took to come to the same training loss."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.report.words import DASH, duration, number, size, visible
from parbench.toloss import LossTable, ToLoss


def loss_table(found: LossTable) -> RenderableType:
    """Lay time to loss out for a terminal, the quickest of each workload first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    headings = (
        "workload",
        "strategy",
        "ranks",
        "trains",
        "loss",
        "reached in",
        "seconds",
        "sent",
        "energy",
        "at the end",
    )
    for name in headings:
        table.add_column(Text(name), justify="left" if name in ("workload", "strategy", "trains") else "right")
    order = list(dict.fromkeys(row.workload for row in found.rows))
    slowest = float("inf")
    for row in sorted(found.rows, key=lambda one: (order.index(one.workload), one.seconds or slowest)):
        table.add_row(*map(Text, _texts(row)), style="dim" if row.steps is None else "")
    title = f"{visible(found.path)}: what it takes to reach a training loss"
    below = (
        "reached by the mean of 5 steps; seconds of steps on their slowest rank, start-up left out; sent by one rank; "
        "medians over launches"
    )
    return Group(Text(title, style="bold"), table, Text(below, style="dim"))


def _texts(row: ToLoss) -> tuple[str, ...]:
    return (
        visible(row.workload, 40),
        visible(row.strategy, 40),
        str(row.ranks),
        row.agrees,
        number(row.target, 4),
        "not reached" if row.steps is None else f"{row.steps:.0f} steps",
        DASH if row.seconds is None else duration(row.seconds),
        DASH if row.bytes is None else size(row.bytes),
        DASH if row.joules is None else f"{number(row.joules)} J",
        "not finite" if row.last is None else number(row.last, 4),
    )
