"""Figures of what was said against what was measured: by closed forms, by a simulation, by a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, MOST_ROWS, Look, canvas, texts
from parbench.report.figures.colours import palette
from parbench.report.figures.marking import ends_of, in_unit, interval, legend, logarithmic, rows

if TYPE_CHECKING:
    import pandas


def predicted(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw predicted against measured values, a panel per unit, with the line on which they are equal.

    Args:
        frame: a row per prediction: `what`, `strategy`, `predicted`, `measured`, `unit`.
        look: width and style.
    """
    units = texts(frame, "unit")
    marks = look.palette(texts(frame, "strategy"))
    with canvas(look, frame, title="Predicted against measured", panels=max(1, len(units))) as made:
        for axes, unit in zip(made.panels, units, strict=False):
            known = frame[(frame["unit"] == unit) & (frame["predicted"] > 0) & (frame["measured"] > 0)]
            factor, shown = in_unit(known["measured"], unit)
            known = known.assign(predicted=known["predicted"] * factor, measured=known["measured"] * factor)
            both = known[["predicted", "measured"]].to_numpy(dtype=float)
            ends = [float(both.min()), float(both.max())] if len(both) else [1.0, 1.0]
            axes.plot(ends, ends, color="#767676", linewidth=0.8, linestyle="--", gid="equal")
            for (strategy, what), part in known.groupby(["strategy", "what"], sort=True):
                mark = marks[str(strategy)]
                axes.plot(
                    part["predicted"].to_numpy(dtype=float),
                    part["measured"].to_numpy(dtype=float),
                    linestyle="",
                    marker=mark.marker,
                    color=mark.colour,
                    markersize=4,
                    alpha=0.85,
                    label=str(strategy),
                    gid=f"{strategy}/{what}",
                )
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
            axes.set_xlabel(f"predicted ({shown})")
            axes.set_ylabel(f"measured ({shown})")
            axes.grid(True, axis="both")
        legend(made.panels[0], columns=3)
        made.caption("A dot per cell and quantity; dashed: as predicted", frame)
    return made.figure


def paper(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw a paper's numbers beside measured ones, in one unit.

    Args:
        frame: a row per claim: `label`, `paper`, `measured`, `ci_low`, `ci_high` (of the measured), `unit`.
        look: width and style.
    """
    shown = frame.head(MOST_ROWS)
    colour = next(iter(palette(["measured"]).values())).colour
    with canvas(look, frame, title="Paper against measured", rows=len(shown) + 1) as made:
        axes = made.axes
        for row, (_, one) in enumerate(shown.iterrows()):
            axes.plot([float(one["paper"])], [row], marker="D", markersize=5, fillstyle="none", color="#767676",
                      linestyle="", label="paper", gid="paper")  # fmt: skip
            interval(axes, row, float(one["measured"]), ends_of(one), colour)
        rows(axes, [str(one) for one in shown["label"]])
        axes.plot([], [], marker="|", markersize=8, color=colour, linestyle="", label="measured")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axes.legend(list(unique.values()), list(unique), loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        axes.set_xlabel(" / ".join(texts(shown, "unit")))
        made.caption("Diamonds: what the paper says. Ticks: measured here, with 95 % intervals", frame)
    return made.figure
