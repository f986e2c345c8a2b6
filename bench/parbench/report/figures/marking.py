"""Marking draws what several figures share: intervals, rows with names, units on axes, legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axis import XAxis
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from parbench.report.figures.colours import Mark
from parbench.report.words import SIGNS, distinct, number, scale

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Beyond this ratio of largest to smallest, an axis is logarithmic: the small would be a line's width.
WIDE = 15.0
_LONGEST_NAME = 26


def in_unit(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Return the factor and unit in which the middle of `values` reads well: 0.0012 s as 1.2 ms."""
    found = [abs(x) for x in values if x == x and x]
    return scale(float(np.median(found)), unit) if found else (1.0, unit)


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Give every row its name, the first on top."""
    axes.set_yticks(range(len(names)), [distinct(names, _LONGEST_NAME)[name] for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")


def marked(frame: pandas.DataFrame) -> tuple[dict[str, str], str]:
    """Return what to call each label, with a sign where its number is doubtful or not ranked, and what signs mean.

    Args:
        frame: with `label` and, where they are known, `quality` and `ranked`.
    """
    called: dict[str, str] = {}
    meant: dict[str, str] = {}
    short = distinct(map(str, frame["label"]), _LONGEST_NAME)
    for _, one in frame.drop_duplicates("label").iterrows():
        quality = str(one.get("quality", "measured"))
        signs = SIGNS.get(quality, "")
        if signs:
            meant[signs] = f"{signs.strip()}: {quality}"
        if not one.get("ranked", True):
            signs += " *"
            meant["*"] = "*: not ranked, it is not known to train as one process does"
        label = str(one["label"])
        called[label] = short[label] + signs
    return called, "".join(f"; {one}" for one in meant.values())


def logarithmic(axis: Axis) -> None:
    """Make an axis logarithmic, labelled with plain numbers (1, 2, 5, 10)."""
    if isinstance(axis, XAxis):
        axis.axes.set_xscale("log")
    else:
        axis.axes.set_yscale("log")
    low, high = axis.get_view_interval()
    decades = np.log10(high / low) if low > 0 else 1.0
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if decades < 2.2 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 2) if value < 100 else f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def interval(axes: Axes, row: float, value: float, ends: tuple[float, float] | None, colour: str) -> None:
    """Draw a median as a tick and its interval as a bar, in a row."""
    if ends is not None:
        axes.plot(ends, [row, row], color=colour, linewidth=1.3, alpha=0.9, solid_capstyle="butt", gid="interval")
    axes.plot([value], [row], marker="|", markersize=9, markeredgewidth=1.6, color=colour, gid="median")


def ends_of(row: pandas.Series[float], factor: float = 1.0) -> tuple[float, float] | None:
    """Return the interval of a row, None where there is none."""
    low, high = (float(row[name]) if row[name] is not None else np.nan for name in ("ci_low", "ci_high"))
    return None if low != low or high != high else (low * factor, high * factor)


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], mark: Mark, label: str, ends: Sequence[Sequence[float]] = ()
) -> Line2D:
    """Draw points with a line through them, and a band between `ends` (lower, upper)."""
    style = {"": "-", "///": "--", "||": ":", "xxx": "-."}.get(mark.hatch, "--")
    (drawn,) = axes.plot(
        x,
        y,
        color=mark.colour,
        marker=mark.marker,
        markersize=3.5,
        linestyle=style,
        label=label,
    )
    if ends and len(x) > 1:
        axes.fill_between(x, ends[0], ends[1], color=mark.colour, alpha=0.18, linewidth=0)
    return drawn


def legend(axes: Axes, *, columns: int = 2) -> None:
    """Put the legend above the plot, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        axes.legend(
            list(unique.values()),
            list(distinct(unique, _LONGEST_NAME).values()),
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=columns,
            borderaxespad=0.2,
            handlelength=1.6,
            columnspacing=1.0,
        )
