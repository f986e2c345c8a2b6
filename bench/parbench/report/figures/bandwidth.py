"""The collectives figure: the bus bandwidth that messages of each size reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.colours import palette
from parbench.report.figures.marking import in_unit, legend, line
from parbench.report.words import size

if TYPE_CHECKING:
    import pandas


def bus_bandwidth(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw sizes of collectives against bus bandwidth (nccl-tests: what a link would have to carry).

    Args:
        frame: a row per measured size: `label` (collective, algorithm, ranks), `bytes`, `value`, `ci_low`, `ci_high`
            (bytes/s), and `correct`.
        look: width and style.
    """
    marks = palette(texts(frame, "label"))
    factor, unit = in_unit([frame["value"].max()], "bytes/s")
    with canvas(look, frame, title="Bus bandwidth of collectives") as made:
        axes = made.axes
        for label, part in frame.sort_values("bytes").groupby("label", sort=True):
            x = [float(one) for one in part["bytes"]]
            y = [factor * float(one) for one in part["value"]]
            bands = [[factor * float(v) for v in part[name].fillna(part["value"])] for name in ("ci_low", "ci_high")]
            line(axes, x, y, marks[str(label)], str(label), bands)
            wrong = part[~part["correct"].astype(bool)]
            axes.plot(
                wrong["bytes"].to_numpy(dtype=float),
                wrong["value"].to_numpy(dtype=float) * factor,
                linestyle="",
                marker="x",
                markersize=7,
                color="#D55E00",
                gid="wrong",
            )
        axes.set_xscale("log", base=2)
        sizes = sorted({float(one) for one in frame["bytes"]})
        axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // 7)]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", rotation=30)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("size of the buffer")
        axes.set_ylabel(f"bus bandwidth ({unit})")
        axes.grid(True, axis="both")
        legend(axes, columns=1 if look.width == "column" else 2)
        told = "; x: wrong result" if not frame["correct"].astype(bool).all() else ""
        made.caption(
            f"Medians over iterations, bands: quartiles; bytes of the buffer over time x the op's factor{told}", frame
        )
    return made.figure
