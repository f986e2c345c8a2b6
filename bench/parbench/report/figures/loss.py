"""The loss figure: training loss against steps, seconds, bytes sent or joules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.marking import in_unit, legend

if TYPE_CHECKING:
    import pandas

Against = Literal["steps", "seconds", "bytes", "joules"]
_AXES: dict[Against, tuple[str, str]] = {
    "steps": ("training steps", ""),
    "seconds": ("seconds of steps", "s"),
    "bytes": ("sent by a rank", "bytes"),
    "joules": ("energy of all ranks", "J"),
}


def loss(frame: pandas.DataFrame, look: Look = COLUMN, *, against: tuple[Against, ...] = ()) -> Figure:
    """Draw training losses.

    Args:
        frame: a row per run and step: `label`, `strategy`, `run`, `loss` (nats), and so far `steps`, `seconds`,
            `bytes` and `joules`, where they are known.
        look: width and style.
        against: what to draw against, a panel each; all that are known unless given.
    """
    chosen = against or tuple(name for name in _AXES if name in frame and frame[name].notna().any())
    marks = look.palette(texts(frame, "strategy"))
    with canvas(look, frame, title="Training loss", panels=max(1, len(chosen))) as made:
        for axes, name in zip(made.panels, chosen, strict=False):
            what, of = _AXES[name]
            factor, unit = in_unit(frame[name].dropna(), of)
            for (label, run), part in frame[frame[name].notna()].groupby(["label", "run"], sort=True):
                mark = marks[str(part["strategy"].iloc[0])]
                axes.plot(
                    part[name].to_numpy(dtype=float) * factor,
                    part["loss"].to_numpy(dtype=float),
                    color=mark.colour,
                    linestyle="-" if not mark.hatch else "--",
                    label=str(label),
                    gid=str(run),
                )
            axes.set_xlabel(f"{what} ({unit})" if unit else what)
            axes.set_ylabel("loss (nats)")
            axes.set_xlim(left=0)
            axes.grid(True, axis="both")
        legend(made.panels[0])
        made.caption("Mean of 5 steps; a line per run", frame)
    return made.figure
