"""The scaling figure: what more ranks bring, beside the ideal, as speed-up and as efficiency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.marking import legend, line, logarithmic

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def scaling(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw how strategies scale, strong or weak.

    Args:
        frame: a row per strategy, kind and number of ranks: `strategy`, `kind` ("strong" or "weak"), `ranks`,
            `speed_up` and `efficiency`, both from the fewest ranks of that strategy; `base_ranks`.
        look: width and style.
    """
    marks = look.palette(texts(frame, "strategy"))
    kinds = texts(frame, "kind")
    with canvas(look, frame, title=f"{' and '.join(kinds).capitalize()} scaling", panels=2) as made:
        for axes, column in zip(made.panels, ("speed_up", "efficiency"), strict=True):
            _ideal(axes, frame, column)
            for (strategy, kind), part in frame.groupby(["strategy", "kind"], sort=True):
                part = part.sort_values("ranks")
                factor = 100.0 if column == "efficiency" else 1.0
                name = f"{strategy}, {kind}" if len(kinds) > 1 else str(strategy)
                drawn = line(
                    axes, [float(x) for x in part["ranks"]], [factor * float(y) for y in part[column]],
                    marks[str(strategy)], name,
                )  # fmt: skip
                drawn.set_gid(f"{strategy}/{kind}")
            ranks = sorted({int(n) for n in frame["ranks"]})
            logarithmic(axes.xaxis)
            axes.xaxis.set_major_locator(FixedLocator(ranks))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("ranks")
            axes.grid(True, axis="y")
        made.panels[0].set_ylabel("speed-up")
        made.panels[1].set_ylabel("efficiency (%)")
        made.panels[1].set_ylim(0, max(106.0, 105.0 * float(frame["efficiency"].max())))
        legend(made.panels[0], columns=2)
        told = "strong: the same global batch; weak: the same batch per rank"
        made.caption(f"From each strategy's fewest ranks; {told}; dashed: ideal", frame)
    return made.figure


def _ideal(axes: Axes, frame: pandas.DataFrame, column: str) -> None:
    most = float(frame["ranks"].max())
    bases = sorted({float(n) for n in frame["base_ranks"]})
    for base in bases if column == "speed_up" else bases[:1]:
        ideal = [1.0, most / base] if column == "speed_up" else [100.0, 100.0]
        label = "ideal" if base == bases[0] else "_nolegend_"  # the others are as the first, from other ranks
        axes.plot([base, most], ideal, color="#767676", linestyle=(0, (4, 3)), linewidth=0.8, label=label, gid="ideal")
