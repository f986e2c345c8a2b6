"""The breakdown figure: where the time of a step goes, parts stacked to the whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, MOST_ROWS, Look, canvas, texts
from parbench.report.figures.marking import in_unit, legend, rows
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas

# Computing is blue, exchanging is red, standing still is grey; light and hatched apart within those.
_PARTS = {
    "forward": ("#56B4E9", ""),
    "backward": ("#0072B2", ""),
    "optimizer": ("#009E73", ""),
    "compression": ("#E69F00", ""),
    "exposed_comm": ("#D55E00", ""),
    "wait": ("#9a9a9a", "///"),
    "bubble": ("#c4c4c4", ""),
    "data": ("#CC79A7", ""),
    "other": ("#767676", "||"),
}
_AGAIN = ("", "///", "||", "xxx", "---")


def breakdown(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw where steps spend their time.

    Args:
        frame: a row per cell and part: `label`, `part` ("forward", "exposed_comm/all_reduce/dp", ...), `seconds` of a
            traced step; the parts of a label sum to the whole.
        look: width and style.
    """
    table = frame.pivot_table(index="label", columns="part", values="seconds", aggfunc="median", fill_value=0.0)
    table = table.loc[table.sum(axis=1).sort_values(kind="stable").index]
    shown = table.head(MOST_ROWS)
    parts = sorted(texts(frame, "part"), key=_place)
    factor, unit = in_unit(shown.sum(axis=1), "s")
    columns = 2 if look.width == "column" else 4
    # A row of the legend is about as high as a bar; with few bars it needs more room than they do.
    high = len(shown) + 2 + max(0, math.ceil(len(parts) / columns) - 2)
    with canvas(look, frame, title="Where the time of a step goes", rows=high) as made:
        axes = made.axes
        left = np.zeros(len(shown))
        again: dict[str, int] = {}
        for part in parts:
            colour, hatch = _PARTS.get(_family(part), _PARTS["other"])
            turn = again[_family(part)] = again.get(_family(part), -1) + 1
            seconds = shown[part].to_numpy(dtype=np.float64) * factor
            if not seconds.any():
                continue
            axes.barh(
                range(len(shown)),
                seconds,
                left=left,
                height=0.62,
                color=colour,
                hatch=hatch or _AGAIN[turn % len(_AGAIN)],
                edgecolor="white",
                linewidth=0.3,
                label=visible(part.removeprefix("exposed_comm/"), 30),
            )
            left += seconds
        rows(axes, [str(one) for one in shown.index])
        axes.set_xlim(0, float(left.max(initial=0.0)) * 1.02 or 1.0)
        axes.set_xlabel(f"traced step ({unit})")
        legend(axes, columns=columns)
        cut = f"; the {len(shown)} shortest of {len(table)}" if len(table) > len(shown) else ""
        made.caption(
            f"Traced steps of the launch in the middle, parts sum to the whole; op/axis: exposed communication{cut}",
            frame,
        )
    return made.figure


def _family(part: str) -> str:
    return part.partition("/")[0]


def _place(part: str) -> tuple[int, str]:
    names = list(_PARTS)
    family = _family(part)
    return (names.index(family) if family in names else len(names), part)
