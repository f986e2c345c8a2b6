"""The timeline figure: what every rank does when, computing above and communicating below, as a Gantt chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from parbench.report.figures.canvas import COLUMN, Look, canvas
from parbench.report.figures.marking import in_unit, rows

if TYPE_CHECKING:
    import pandas

COLOURS = {
    "data": "#CC79A7",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "optimizer": "#009E73",
    "compression": "#E69F00",
    "wait": "#9a9a9a",
    "collective": "#D55E00",
    "other": "#767676",
}
# A page has as many pixels across; shorter spans would only make the file large.
_FINEST = 1500
_MOST_RANKS = 16


def timeline(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw one row per rank.

    Args:
        frame: a row per span: `rank`, `kind` (of COLOURS), `lane` ("compute" or "communication"), `start_s`, `end_s`,
            both from the same zero on all ranks.
        look: width and style.
    """
    ranks = sorted({int(one) for one in frame["rank"]})
    shown = ranks[:_MOST_RANKS]
    first, last = float(frame["start_s"].min()), float(frame["end_s"].max())
    factor, unit = in_unit([(last - first) / 2], "s")
    finest = (last - first) / _FINEST
    with canvas(look, frame, title="What ranks do when", rows=max(3, 2 * len(shown))) as made:
        axes = made.axes
        for row, rank in enumerate(shown):
            own = frame[(frame["rank"] == rank) & (frame["end_s"] - frame["start_s"] >= finest)]
            for (kind, lane), part in own.groupby(["kind", "lane"], sort=True):
                below = lane == "communication"
                spans = [
                    ((float(a) - first) * factor, (float(b) - float(a)) * factor)
                    for a, b in zip(part["start_s"], part["end_s"], strict=True)
                ]
                drawn = axes.broken_barh(
                    spans, (row + (0.06 if below else -0.4), 0.32 if below else 0.42),
                    facecolors=COLOURS.get(str(kind), COLOURS["other"]), edgecolor="white", linewidth=0.2,
                )  # fmt: skip
                drawn.set_gid(f"rank {rank} {kind}")
        rows(axes, [f"rank {rank}" for rank in shown])
        axes.set_xlim(0, (last - first) * factor or 1.0)
        axes.set_xlabel(f"time ({unit})")
        kinds = [kind for kind in COLOURS if (frame["kind"] == kind).any()]
        axes.legend(
            [Patch(facecolor=COLOURS[kind]) for kind in kinds], kinds, loc="lower left", bbox_to_anchor=(0.0, 1.0),
            ncols=4, borderaxespad=0.2, handlelength=1.0, columnspacing=1.0,
        )  # fmt: skip
        cut = f"; the first {len(shown)} of {len(ranks)} ranks" if len(ranks) > len(shown) else ""
        made.caption(
            f"Upper half of a row: computing; lower half: collectives as the backend carried them out{cut}", frame
        )
    return made.figure
