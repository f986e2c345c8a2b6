"""Tables of traces: where the steps went, what was communicated, who waited for whom, who sent whom how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from parbench.report.words import DASH, duration, number, size, visible
from parbench.tracing.bandwidth import Row
from parbench.tracing.breakdown import NAMES
from parbench.tracing.names import op_of
from parbench.tracing.summary import OfRank, Summary

# A column per rank is read up to here; of more ranks the slowest are shown.
_MOST_COLUMNS, _MOST_ROWS = 6, 20
_UNKNOWN = "?"


def tables(summary: Summary) -> Iterable[RenderableType]:
    """Yield what a terminal shows of traces."""
    yield _title(summary)
    if any(one.breakdown for one in summary.ranks):
        yield from _breakdown(summary)
    if summary.communication:
        yield from _communication(summary.communication)
    if len(summary.stragglers) > 1:
        yield from _stragglers(summary)
    if len(summary.matrix.ranks) > 1 and any(map(any, summary.matrix.sent)):
        yield from _matrix(summary)
    for sentence in summary.notes:
        yield Text(f"note: {visible(sentence)}", style="yellow")


def _title(summary: Summary) -> Text:
    candidates, recognised = (sum(getattr(one, f) for one in summary.ranks) for f in ("candidates", "recognised"))
    steps = sorted({one.steps for one in summary.ranks})
    parts = [
        visible(summary.backend or "backend unknown", 40),
        f"{len(summary.ranks)} of {summary.world_size} ranks",
        f"{' to '.join(map(str, dict.fromkeys((steps[0], steps[-1]))))} step{'' if steps[-1] == 1 else 's'} each",
        f"{recognised} of {candidates} candidate events recognised",
        summary.clocks
        + ("" if summary.uncertainty_ns is None else f", within {duration(summary.uncertainty_ns / 1e9)}"),
    ]
    return Text(" · ".join(parts), style="bold")


def _breakdown(summary: Summary) -> Iterable[RenderableType]:
    timed = sorted((one for one in summary.ranks if one.breakdown), key=lambda one: -(one.step_s or 0.0))
    shown = sorted(timed[:_MOST_COLUMNS], key=lambda one: one.rank)
    names = [*NAMES[:2], *sorted({n for one in timed for n in one.breakdown or {} if n not in NAMES}), *NAMES[2:]]
    table = _table("seconds of a step", *(_rank(one, summary) for one in shown), numbers=True)
    for name in names:
        if any((one.breakdown or {}).get(name) for one in timed):
            table.add_row(
                Text(visible(name, 60)), *(_share(one, (one.breakdown or {}).get(name, 0.0)) for one in shown)
            )
    table.add_section()
    table.add_row("step", *(Text(duration(one.step_s or 0.0)) for one in shown))
    table.add_row("of other: not attributed", *(_share(one, one.unattributed_s or 0.0) for one in shown))
    table.add_row("communication overlapped", *(Text(_percent(one.overlap)) for one in shown))
    yield from (Text(""), table)
    if len(timed) > len(shown):
        yield _legend(f"the {len(shown)} slowest of {len(timed)} ranks; --json has all")


def _rank(one: OfRank, summary: Summary) -> str:
    differing = [axis for axis in one.coordinate if len({other.coordinate.get(axis) for other in summary.ranks}) > 1]
    place = " ".join(f"{axis}{one.coordinate[axis]}" for axis in differing)
    slowest = ", slowest" if one.rank == summary.slowest and len(summary.ranks) > 1 else ""
    return f"rank {one.rank}{f' ({visible(place, 30)})' if place else ''}{slowest}"


def _share(one: OfRank, value: float) -> Text:
    return Text(f"{duration(value)} {value / one.step_s:4.0%}" if one.step_s else DASH)


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"


def _communication(rows: Sequence[Row]) -> Iterable[RenderableType]:
    table = _table(
        *("collective", "axis", "ranks", "type", "buffer", "count"),
        *("sent (all)", "transfer", "waiting", "algbw", "busbw"),
        numbers=False,
    )
    for row in rows[:_MOST_ROWS]:
        table.add_row(
            _named(row),
            visible(row.axis or _UNKNOWN, 20),
            str(row.ranks),
            visible(row.dtype or DASH, 12),
            DASH if row.buffer_bytes is None else size(row.buffer_bytes),
            str(row.count),
            DASH if row.logical_bytes is None else size(row.logical_bytes),
            DASH if row.transfer_s is None else duration(row.transfer_s),
            DASH if row.waiting_s is None else duration(row.waiting_s),
            _rate(row.algbw_bytes_per_s),
            _rate(row.busbw_bytes_per_s),
        )
    left = len(rows) - _MOST_ROWS
    yield from (Text(""), table)
    yield _legend(
        (f"{left} more kinds: --json has all; " if left > 0 else "")
        + "sent: logical bytes of all ranks; transfer: median of the shortest time in flight on any rank; "
        "waiting: mean, for the last rank to come; bandwidths without waiting, 1 GB = 10^9 B"
    )


def _named(row: Row) -> str:
    """Return the operation, and under which other one the backend carries it out."""
    shown = sorted({op for name in row.shown_as if (op := op_of(name)) and op not in (row.op, "send", "recv")})
    return f"{visible(row.op, 30)}{f' (as {shown[0]})' if shown else ''}"


def _rate(value: float | None) -> str:
    return DASH if value is None else f"{number(value / 1e9)} GB/s"


def _stragglers(summary: Summary) -> Iterable[RenderableType]:
    table = _table("rank", "came last", "delayed others by", "waited for others", numbers=True)
    for one in summary.stragglers[:_MOST_ROWS]:
        table.add_row(
            str(one.rank), f"{one.last} of {one.collectives}", duration(one.delayed_s), duration(one.waited_s)
        )
    yield from (Text(""), table)
    left = len(summary.stragglers) - _MOST_ROWS
    yield _legend(f"who delays others most comes first{f'; {left} more ranks: --json has all' if left > 0 else ''}")


def _matrix(summary: Summary) -> Iterable[RenderableType]:
    found = summary.matrix
    if len(found.ranks) > 16:
        yield _legend(f"who sends whom how much, of {len(found.ranks)} ranks: --json")
        return
    table = _table("sent, from \\ to", *map(str, found.ranks), numbers=True)
    for rank, sizes in zip(found.ranks, found.sent, strict=True):
        table.add_row(str(rank), *(DASH if not value else size(value) for value in sizes))
    unknown = f"; of {found.unknown} the bytes are not known" if found.unknown else ""
    yield from (Text(""), table)
    yield _legend(f"logical bytes in all traced steps, collectives as their ideal algorithm sends them{unknown}")


def _legend(text: str) -> Text:
    return Text(text, style="dim")


def _table(*titles: str, numbers: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    left = {"collective", "axis", "type"}
    for k, title in enumerate(titles):
        right = k > 0 if numbers else title not in left
        table.add_column(Text(title), justify="right" if right else "left", overflow="fold", no_wrap=k == 0 and numbers)
    return table
