"""The history figure: a metric over runs, with the levels between its change points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.marking import in_unit
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas

_MOST_SERIES = 6


def history(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw series of values, a panel each; those that step to another level first.

    Args:
        frame: a row per run and series: `series` (cell and metric), `strategy`, `run` (number, oldest first), `value`,
            `unit`, `level` (median between change points), `changed` (whether a new level begins), `commit`.
        look: width and style.
    """
    by_change = frame.groupby("series", sort=False)["changed"].any().sort_values(ascending=False, kind="stable")
    shown = [str(one) for one in by_change.index[:_MOST_SERIES]]
    marks = look.palette(texts(frame, "strategy"))
    with canvas(look, frame, title="History", panels=max(1, len(shown))) as made:
        for axes, series in zip(made.panels, shown, strict=False):
            part = frame[frame["series"] == series].sort_values("run")
            factor, unit = in_unit(part["value"], str(part["unit"].iloc[0]))
            mark = marks[str(part["strategy"].iloc[0])]
            runs = part["run"].to_numpy(dtype=float)
            axes.plot(
                runs, part["value"].to_numpy(dtype=float) * factor, marker=mark.marker, markersize=2.5,
                linestyle="", color=mark.colour, gid="values",
            )  # fmt: skip
            axes.step(runs, part["level"].to_numpy(dtype=float) * factor, where="mid", linewidth=1.0,
                      color="#767676", gid="level")  # fmt: skip
            for _, one in part[part["changed"].astype(bool)].iterrows():
                axes.axvline(float(one["run"]) - 0.5, color="#D55E00", linewidth=0.8, linestyle=":", gid="change")
                axes.annotate(visible(one["commit"] or "", 10), (float(one["run"]) - 0.5, 1.0),
                              xycoords=("data", "axes fraction"), xytext=(-3, -7), textcoords="offset points",
                              fontsize=5.5)  # fmt: skip
            axes.set_title(visible(series, 60), loc="left", fontsize=6.5)
            axes.set_ylabel(unit)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("run, oldest first")
            axes.set_ylim(0, float(part["value"].max()) * factor * 1.15 or 1.0)
        cut = f"; {len(shown)} of {len(by_change)} series" if len(by_change) > len(shown) else ""
        made.caption(f"Dots: runs. Line: median between change points (dotted, with the first commit after){cut}",
                     frame.drop(columns="commit"))  # fmt: skip
    return made.figure
