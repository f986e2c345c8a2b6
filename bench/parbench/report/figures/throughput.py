"""The throughput figure: a bar per strategy with its interval, and a sign where a number is not simply measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, MOST_ROWS, Look, canvas, texts
from parbench.report.figures.marking import ends_of, in_unit, marked, rows
from parbench.report.words import number

if TYPE_CHECKING:
    import pandas


def throughput(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw throughput.

    Args:
        frame: a row per cell: `label`, `strategy`, `value`, `ci_low`, `ci_high`, `unit`, `quality`, `n`.
        look: width and style.
    """
    known = frame[frame["value"].notna()].sort_values("value", ascending=False, kind="stable")
    shown = known.head(MOST_ROWS)
    marks = look.palette(texts(frame, "strategy"))
    units = texts(shown, "unit")
    factor, unit = in_unit(shown["value"], units[0] if units else "")
    with canvas(look, frame, title="Throughput", rows=len(shown)) as made:
        axes = made.axes
        for row, (_, one) in enumerate(shown.iterrows()):
            mark = marks[str(one["strategy"])]
            value, ends = float(one["value"]) * factor, ends_of(one, factor)
            axes.barh(row, value, height=0.62, color=mark.colour, hatch=mark.hatch, edgecolor="white", linewidth=0)
            if ends is not None:
                axes.errorbar(
                    value,
                    row,
                    xerr=[[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]],
                    color=axes.xaxis.label.get_color(),
                    capsize=2,
                    linewidth=0.9,
                )
            edge = max(value, ends[1] if ends is not None else value)
            axes.annotate(
                number(value),
                (edge, row),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=6,
            )
        called, signs = marked(shown)
        rows(axes, [called[str(one)] for one in shown["label"]])
        axes.set_xlim(left=0)
        axes.margins(x=0.14)
        axes.set_xlabel(f"{unit}, more is better")
        left = f"; the {len(shown)} fastest of {len(known)}" if len(known) > len(shown) else ""
        made.caption(f"Bars: samples over time, with 95 % intervals{left}{signs}", frame)
    return made.figure
