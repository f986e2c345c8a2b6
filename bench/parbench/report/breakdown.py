"""Where a traced step went, in lines: its parts on every rank, scaled to a timed step too, and who delays whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from parbench.observed_trace import RankTraced, Traced
from parbench.record import RunRecord
from parbench.report.words import duration, number, size, visible

# A column per rank is read up to here; of more ranks the slowest are shown.
_MOST_COLUMNS = 6
# Of a step: smaller parts are not named in one line.
_SHARE = 0.03
_MOST_PARTS = 5


def breakdown_lines(record: RunRecord) -> Iterator[RenderableType]:
    """Yield the breakdown of a run; nothing where it has none."""
    traced = record.traced
    if traced is None or traced.reason is not None or not traced.ranks or record.breakdown is None:
        return
    timed = record.metrics.get("step_time_s")
    yield _table(traced, None if timed is None else timed.value)
    counts = sum(one.recognised for one in traced.ranks), sum(one.candidates for one in traced.ranks)
    yield Text(f"  {counts[0]} of {counts[1]} candidate events recognised as communication", style="dim")
    if len(traced.keeping) > 1 and (worst := traced.keeping[0]).collectives:
        yield Text(
            f"  rank {worst.rank} comes last to {worst.last} of {worst.collectives} collectives and delays the others "
            f"by {duration(worst.delayed_s / max(1, traced.steps))} a step"
        )
    if traced.files:
        yield Text(
            f"  traces: {size(sum(traced.files.values()))} in the run's folder; parbench trace shows and merges them"
        )


def breakdown_line(record: RunRecord) -> str | None:
    """Return where the traced step of the slowest rank went, in a line: its largest parts."""
    parts = record.breakdown
    if not parts or record.traced is None:
        return None
    whole = sum(parts.values())
    named = [(name, seconds / whole) for name, seconds in parts.items() if whole and seconds / whole >= _SHARE]
    told = sorted(named, key=lambda pair: -pair[1])[:_MOST_PARTS]
    return ", ".join(f"{visible(name, 60)} {share:.0%}" for name, share in told)


def _table(traced: Traced, timed_s: float | None) -> Table:
    shown = sorted(sorted(traced.ranks, key=lambda one: -one.step_s)[:_MOST_COLUMNS], key=lambda one: one.rank)
    slowest = next(one for one in traced.ranks if one.rank == traced.slowest)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, caption_justify="left")
    table.add_column(f"a traced step, mean of {traced.steps}", overflow="fold")
    for one in shown:
        table.add_column(Text(_rank(one, traced)), justify="right")
    scaled = timed_s is not None and slowest.step_s > 0
    if scaled:
        table.add_column(Text(f"rank {slowest.rank} scaled to a timed step"), justify="right")
    for name in _names(shown):
        row = [_share(one.parts.get(name, 0.0), one.step_s) for one in shown]
        if scaled and timed_s is not None:
            row.append(duration(slowest.parts.get(name, 0.0) / slowest.step_s * timed_s))
        table.add_row(*map(Text, (visible(name, 60), *row)))
    table.add_section()
    last = [duration(one.step_s) for one in shown] + ([duration(timed_s)] if scaled and timed_s is not None else [])
    table.add_row(*map(Text, ("step", *last)))
    table.add_row(*map(Text, ("of other: in no part", *(_share(o.unattributed_s, o.step_s) for o in shown))))
    left = len(traced.ranks) - len(shown)
    over = "" if timed_s is None or not timed_s else f"traced / timed step: {number(slowest.step_s / timed_s)}"
    table.caption = Text("; ".join(filter(None, (over, f"{left} faster ranks are left out" if left else ""))))
    return table


def _names(ranks: Sequence[RankTraced]) -> list[str]:
    """Return the parts that any rank has, the largest first, what is left last."""
    total: dict[str, float] = {}
    for one in ranks:
        for name, seconds in one.parts.items():
            total[name] = max(total.get(name, 0.0), seconds)
    return sorted((name for name, s in total.items() if s), key=lambda name: (name == "other", -total[name]))


def _rank(one: RankTraced, traced: Traced) -> str:
    place = _place(one.coordinate)
    return f"rank {one.rank}{place}{', slowest' if one.rank == traced.slowest and len(traced.ranks) > 1 else ''}"


def _place(coordinate: Mapping[str, int]) -> str:
    said = " ".join(f"{visible(axis, 12)} {place}" for axis, place in coordinate.items())
    return f" ({said})" if said else ""


def _share(seconds: float, step_s: float) -> str:
    return f"{duration(seconds)} {seconds / step_s:4.0%}" if step_s else "-"
