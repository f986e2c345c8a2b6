"""The report of a history: where which metric stepped to another level, the latest step first."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.changepoints import ChangePoint, Changes
from parbench.record import Metric
from parbench.report.words import DASH, amount, visible

_STYLES = {"worse": "red", "better": "green"}


def changes_table(found: Changes) -> RenderableType:
    """Lay change points out for a terminal."""
    title = f"{visible(found.path)}: {len(found.points)} change points in {found.series} series of {found.runs} runs"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in ("verdict", "cell", "metric", "before", "after", "change", "after commit", "up to commit"):
        table.add_column(Text(name), overflow="fold")
    for one in found.points:
        texts = (
            one.verdict,
            visible(one.cell, 80),
            visible(one.metric, 40),
            _level(one.old, one),
            _level(one.new, one),
            DASH if not one.old else f"{100 * (one.new / one.old - 1):+.1f} %",
            *(DASH if commit is None else visible(commit[:10]) for commit in one.commits),
        )
        table.add_row(*map(Text, texts), style=_STYLES.get(one.verdict, ""))
    notes = [Text(visible(note, 500), style="dim") for note in found.notes]
    return Group(Text(title, style="bold"), *([table] if found.points else []), *notes)


def _level(value: float, one: ChangePoint) -> str:
    return amount(Metric(value=value, unit=one.unit, better=one.better))
