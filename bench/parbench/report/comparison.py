"""The comparison report is a table of verdicts, one line per cell and metric, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.comparison import Comparison, Scaled
from parbench.report.lines import HEADINGS, Line, below, differing, lines_of, title
from parbench.report.words import DASH, number, visible

_RIGHT = frozenset({"ranks", "old", "new"})
_STYLES = {"worse": "red", "missing": "red", "better": "green", "changed": "yellow", "not ranked": "dim", "same": "dim"}


def comparison_table(comparison: Comparison, *, changes_first: bool) -> RenderableType:
    """Lay a comparison out.

    Args:
        comparison: what was found.
        changes_first: what changed is on top, and what stayed the same is counted only.
    """
    found = lines_of(comparison, changes_first=changes_first)
    same = [one for one in found if one.verdict == "same"] if changes_first else []
    shown = [one for one in found if one not in same]
    sentences = list(dict.fromkeys(one.why for one in shown if one.why))
    parts: list[RenderableType] = [Text(title(comparison), style="bold")]
    parts += [Text(visible(sentence, 500), style="dim") for sentence in comparison.fixed]
    parts += [Text(f"differs: {sentence}") for sentence in differing(comparison.differs)]
    if shown:
        parts.append(_table(shown, sentences))
    if same:
        parts.append(Text(f"{len(same)} of {len(found)} comparisons: the same", style="dim"))
    parts += [Text(f"[{k}] {sentence}", style="dim") for k, sentence in enumerate(sentences, start=1)]
    parts += [Text(sentence) for sentence in below(comparison)]
    if comparison.scaling:
        parts.append(_scaling(comparison.scaling))
    return Group(*parts)


def _table(lines: Sequence[Line], sentences: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    # Held against one reference, the old values are those of its own lines.
    kept = [k for k, name in enumerate(HEADINGS) if name != "old" or not any(one.texts[4] == DASH for one in lines)]
    for k in kept:
        name = HEADINGS[k]
        wraps = name in ("workload", "strategy", "verdict")
        table.add_column(Text(name), justify="right" if name in _RIGHT else "left", overflow="fold", no_wrap=not wraps)
    before: tuple[str, ...] = ()
    for one in lines:
        cell = one.texts[:3]
        mark = f" [{sentences.index(one.why) + 1}]" if one.why else ""
        shown = [*(cell if cell != before else ("", "", "")), *one.texts[3:-1], one.texts[-1] + mark]
        table.add_row(*(Text(shown[k]) for k in kept), style=_STYLES.get(one.verdict, ""))
        before = cell
    return table


def _scaling(found: Sequence[Scaled]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    headings = ("workload", "strategy", "scaling", "ranks", "step time", "speed-up", "efficiency", "overhead", "base")
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in ("ranks", "speed-up") else "left")
    for one in found:
        texts = scaled_texts(one)
        table.add_row(*map(Text, texts))
    return table


def scaled_texts(one: Scaled) -> tuple[str, ...]:
    """Return a line of the scaling table."""
    return (
        visible(one.workload, 40),
        visible(one.strategy, 40),
        one.kind,
        str(one.ranks),
        f"{number(1e3 * one.step_time_s)} ms",
        number(one.speed_up),
        f"{100 * one.efficiency:.0f} %",
        f"{number(1e3 * one.overhead_s)} rank ms",
        visible(one.base, 60),
    )
