"""The step time figure: every raw sample of every strategy, their median and its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from parbench.report.figures.canvas import COLUMN, MOST_ROWS, Look, canvas, texts
from parbench.report.figures.marking import WIDE, ends_of, in_unit, interval, logarithmic, marked, rows

if TYPE_CHECKING:
    import pandas

# More points than this are one picture inside the drawing, which stays small then.
_MOST_POINTS = 3000


def step_time(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw step times.

    Args:
        frame: a row per raw sample: `label`, `strategy`, `seconds`, and of its label `value`, `ci_low`, `ci_high` (s).
        look: width and style.
    """
    labels = [str(one) for one in frame.groupby("label")["value"].first().sort_values(kind="stable").index]
    shown = labels[:MOST_ROWS]
    marks = look.palette(texts(frame, "strategy"))
    factor, unit = in_unit(frame["value"], "s")
    with canvas(look, frame, title="Step time", rows=len(shown)) as made:
        axes = made.axes
        for row, label in enumerate(shown):
            part = frame[frame["label"] == label]
            colour = marks[str(part["strategy"].iloc[0])].colour
            values = part["seconds"].dropna().to_numpy(dtype=np.float64) * factor
            axes.scatter(
                values,
                row + _spread(len(values)),
                s=7,
                color=colour,
                alpha=0.55,
                linewidths=0,
                rasterized=len(frame) > _MOST_POINTS,
                gid="samples",
            )
            first = part.iloc[0]
            interval(axes, row, float(first["value"]) * factor, ends_of(first, factor), colour)
        called, signs = marked(frame)
        rows(axes, [called[label] for label in shown])
        drawn = frame.loc[frame["label"].isin(shown), "seconds"].dropna()
        if len(drawn) and drawn.min() > 0 and drawn.max() > WIDE * drawn.min():
            logarithmic(axes.xaxis)
        else:
            axes.set_xlim(left=0)
        axes.set_xlabel(f"step time ({unit}), less is better")
        left = f"; the {len(shown)} fastest of {len(labels)}" if len(labels) > len(shown) else ""
        made.caption(f"Dots: rounds. Tick: median. Bar: its 95 % interval{left}{signs}", frame)
    return made.figure


def _spread(count: int) -> NDArray[np.float64]:
    """Return offsets that keep dots of one row apart; the same every time."""
    golden = 0.6180339887
    return ((np.arange(count, dtype=np.float64) * golden) % 1.0 - 0.5) * 0.45
