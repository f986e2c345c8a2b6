"""The meters figure: power and memory over time, as probes read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.colours import palette
from parbench.report.figures.marking import in_unit, legend
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas


def meters(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw what meters read, a panel per quantity.

    Args:
        frame: a row per reading: `what` ("power", "memory"), `label` (whose), `seconds`, `value`, `unit`.
        look: width and style.
    """
    quantities = texts(frame, "what")
    marks = look.palette(()) if look.marks else palette(texts(frame, "label"))
    with canvas(
        look, frame, title=f"{' and '.join(quantities).capitalize()} over time", panels=len(quantities) or 1
    ) as made:
        for axes, what in zip(made.panels, quantities, strict=False):
            of = frame[frame["what"] == what]
            factor, unit = in_unit([of["value"].max()], str(of["unit"].iloc[0]))
            for label, part in of.sort_values("seconds").groupby("label", sort=True):
                mark = marks.get(str(label)) or palette([str(label)])[str(label)]
                axes.plot(
                    part["seconds"].to_numpy(dtype=float),
                    part["value"].to_numpy(dtype=float) * factor,
                    color=mark.colour,
                    label=visible(label, 26),
                    gid=str(label),
                )
            axes.set_xlabel("time (s)")
            axes.set_ylabel(f"{what} ({unit})")
            axes.set_ylim(bottom=0)
            axes.grid(True, axis="y")
        legend(made.panels[0])
        made.caption("Readings in order, none averaged", frame)
    return made.figure
