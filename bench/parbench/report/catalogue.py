"""The catalogue of figures: each with its name, the frame it is drawn from and the function that draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parbench.errors import MissingError, unknown_name
from parbench.report import data, figures
from parbench.report.data.measured import frame_of
from parbench.report.figures.canvas import Look
from parbench.report.sources import Source
from parbench.report.words import distinct

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from parbench.changepoints import Changes
    from parbench.history import History


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of figure.

    Attributes:
        name: on the command line.
        shows: what it shows, in words.
        frame: source -> what is drawn; without rows where the records have nothing of it.
        draw: frame -> figure.
    """

    name: str
    shows: str
    frame: Callable[[Source], pandas.DataFrame]
    draw: Callable[[pandas.DataFrame, Look], Figure]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure that was drawn: which, of which group of cells, what it shows, and the look it was drawn with."""

    name: str
    group: str
    shows: str
    figure: Figure
    look: Look


def _history(source: Source) -> pandas.DataFrame:
    found = source.history
    return frame_of([], ("series",)) if found is None else data.history_frame(found, _changes(found))


def _changes(found: History) -> Changes | None:
    from parbench.changepoints import changes

    try:
        return changes(found, ["step_time_s"])
    except MissingError:  # without ruptures a history has one level
        return None


def _bandwidth(source: Source) -> pandas.DataFrame:
    import pandas

    parts = [data.bandwidth_frame(path) for path in source.benches]
    if parts[1:]:  # the same collective in two files is two lines
        stems = distinct((path.name for path in source.benches), 20)
        parts = [p.assign(label=p["label"] + f", {stems[f.name]}") for p, f in zip(parts, source.benches, strict=True)]
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], ("label",))


def _timeline(source: Source) -> pandas.DataFrame:
    import pandas

    parts = [data.timeline_frame(traces).assign(group=run) for run, traces in source.traces.items()]
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], ("group",))


def _matrix(source: Source) -> pandas.DataFrame:
    import pandas

    parts = [data.matrix_frame(sent).assign(group=run) for run, sent in source.sent.items()]
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], ("group",))


def _meters(source: Source) -> pandas.DataFrame:
    import pandas

    groups = {run: data.meter_frame(part) for run, part in source.steps.groupby("run")}
    parts = [frame.assign(group=run) for run, frame in groups.items() if len(frame)]
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], ("group",))


ENTRIES = (
    Entry("step-time", "step times of strategies", lambda s: data.rounds_frame(s.cells, s.records), figures.step_time),
    Entry("throughput", "throughput", lambda s: data.throughput_frame(s.cells, s.records), figures.throughput),
    Entry(
        "breakdown",
        "where the time of a step goes",
        lambda s: data.breakdown_frame(s.cells, s.records),
        figures.breakdown,
    ),
    Entry(
        "trade-offs",
        "time against memory and energy",
        lambda s: data.trade_off_frame(s.cells, s.records),
        figures.trade_offs,
    ),
    Entry(
        "scaling",
        "what more ranks bring",
        lambda s: data.scaling_frame(s.cells),
        figures.scaling,
    ),
    Entry(
        "links", "speed against the bandwidth of links", lambda s: data.links_frame(s.cells, s.records), figures.links
    ),
    Entry("loss", "training losses", lambda s: data.loss_frame(s.cells, s.records, s.steps), figures.loss),
    Entry("bandwidth", "bus bandwidth of collectives", _bandwidth, figures.bus_bandwidth),
    Entry("matrix", "how many bytes ranks send to one another", _matrix, figures.communication_matrix),
    Entry("timeline", "what ranks do when", _timeline, figures.timeline),
    Entry("meters", "power and memory over time", _meters, figures.meters),
    Entry("history", "step times over runs", _history, figures.history),
    Entry(
        "predicted",
        "closed forms against counts",
        lambda s: data.prediction_frame(s.cells, s.records),
        figures.predicted,
    ),
)


def entry(name: str) -> Entry:
    """Return the kind of figure of a name.

    Raises:
        UsageError: nobody knows it.
    """
    found = next((one for one in ENTRIES if one.name == name), None)
    if found is None:
        names = [one.name for one in ENTRIES]
        raise unknown_name("figure", name, names, f"figures: {', '.join(names)}")
    return found


def drawn(one: Entry, source: Source, look: Look, most: int | None = None) -> Iterator[Drawn]:
    """Yield the figures of one kind, one per group of cells that are compared; none where the records lack it.

    Args:
        one: which kind.
        source: the records.
        look: width, style and the marks of the report's strategies.
        most: groups that are drawn; the last one says how many are not. None draws all.
    """
    frame = one.frame(source)
    if not len(frame):
        return
    if "group" not in frame:
        yield Drawn(one.name, "", one.shows, one.draw(frame, look), look)
        return
    groups = list(dict.fromkeys(frame["group"]))
    shown = groups[:most]
    for group in shown:
        part = frame[frame["group"] == group]
        left = len(groups) - len(shown) if group == shown[-1] else 0
        named = f"{group} ({left} more not drawn here; --figure {one.name} draws all)" if left else str(group)
        yield Drawn(one.name, named, one.shows, one.draw(part, look), look)
