"""The trade-off figure: step time against memory and energy; what no other strategy beats in both is on the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.marking import WIDE, in_unit, legend, logarithmic, marked

if TYPE_CHECKING:
    import pandas

_AGAINST = {
    "peak_memory_bytes": ("peak memory of a rank", "bytes"),
    "energy_j_per_step": ("energy per step", "J"),
}
# More names would lie on each other.
_MOST_NAMES = 8


def trade_offs(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw step time against peak memory and energy.

    Args:
        frame: a row per cell: `label`, `strategy`, `step_time_s`, `peak_memory_bytes`, `energy_j_per_step`; what is not
            `ranked` or is of `quality` suspect is on no front.
        look: width and style.
    """
    against = [name for name in _AGAINST if name in frame and frame[name].notna().any()]
    marks = look.palette(texts(frame, "strategy"))
    factor, unit = in_unit(frame["step_time_s"].dropna(), "s")
    called, meant = marked(frame)
    with canvas(look, frame, title="Time against what it takes", panels=max(1, len(against))) as made:
        for axes, name in zip(made.panels, against, strict=False):
            known = frame[frame["step_time_s"].notna() & frame[name].notna()]
            what, of = _AGAINST[name]
            by, other = in_unit(known[name], of)
            points = [
                (float(x) * factor, float(y) * by) for x, y in zip(known["step_time_s"], known[name], strict=True)
            ]
            sure = [k for k, (_, one) in enumerate(known.iterrows()) if _sure(one)]
            best = {sure[k] for k in front([points[k] for k in sure])}
            stairs = sorted(points[k] for k in best)
            axes.plot([x for x, _ in stairs], [y for _, y in stairs], drawstyle="steps-post", color="#767676",
                      linewidth=0.8, linestyle="--", gid="front")  # fmt: skip
            for k, (point, (_, one)) in enumerate(zip(points, known.iterrows(), strict=True)):
                mark = marks[str(one["strategy"])]
                axes.plot(
                    *point,
                    marker=mark.marker,
                    color=mark.colour,
                    markersize=5 if k in best else 4,
                    fillstyle="full" if k in best else "none",
                    linestyle="",
                    gid="point",
                    label=str(one["strategy"]),
                )
                if k in best and len(best) <= _MOST_NAMES:
                    axes.annotate(
                        called[str(one["label"])], point, xytext=(4, 3), textcoords="offset points", fontsize=6
                    )
            for axis, values in ((axes.xaxis, [x for x, _ in points]), (axes.yaxis, [y for _, y in points])):
                if min(values) > 0 and max(values) > WIDE * min(values):
                    logarithmic(axis)
            axes.margins(0.18)
            axes.set_xlabel(f"step time ({unit})")
            axes.set_ylabel(f"{what} ({other})")
            axes.grid(True, axis="both")
        legend(made.panels[0])
        made.caption(f"Less is better in both; filled: on the Pareto front, beaten in both by none{meant}", frame)
    return made.figure


def _sure(one: pandas.Series[float]) -> bool:
    return bool(one.get("ranked", True)) and one.get("quality", "measured") != "suspect"


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return which points no other beats in one coordinate without losing in the other, from left to right."""
    kept: list[int] = []
    best = float("inf")
    for k in sorted(range(len(points)), key=lambda one: points[one]):
        if points[k][1] < best or (kept and points[k] == points[kept[-1]]):
            kept.append(k)
            best = points[k][1]
    return kept
