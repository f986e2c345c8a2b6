"""The communication matrix: how many bytes each rank sends to each other one in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, Look, canvas
from parbench.report.figures.marking import in_unit
from parbench.report.words import number

if TYPE_CHECKING:
    import pandas

_MOST_WITH_NUMBERS = 12


def communication_matrix(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw who sends how much to whom.

    Args:
        frame: a row per pair of ranks: `source`, `destination`, `bytes` of a step.
        look: width and style.
    """
    import seaborn

    ranks = range(int(max(frame["source"].max(), frame["destination"].max())) + 1)
    table = frame.pivot_table(index="source", columns="destination", values="bytes", aggfunc="sum")
    table = table.reindex(index=ranks, columns=ranks).fillna(0.0)
    factor, unit = in_unit([float(table.to_numpy().max())], "bytes")
    values = table * factor
    few = len(values) <= _MOST_WITH_NUMBERS
    with canvas(look, frame, title="Bytes between ranks in a step", rows=max(8, min(len(values), 24))) as made:
        axes = made.axes
        seaborn.heatmap(
            values,
            ax=axes,
            cmap="Blues",
            square=True,
            annot=values.map(lambda x: number(x) if x else "") if few else False,
            fmt="",
            annot_kws={"fontsize": 6},
            linewidths=0.5 if few else 0,
            cbar_kws={"label": unit, "shrink": 0.8},
            vmin=0,
        )
        axes.tick_params(labelsize=6.5, length=0, rotation=0)
        axes.collections[0].set_gid("matrix")
        axes.set_xlabel("to rank")
        axes.set_ylabel("from rank")
        made.caption("Logical bytes of messages and of the ring that a collective's ideal algorithm is", frame)
    return made.figure
