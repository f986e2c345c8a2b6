"""The links figure: step time against the bandwidth of links, and from where on another strategy is the fastest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, Look, canvas, texts
from parbench.report.figures.marking import in_unit, legend, line, logarithmic
from parbench.report.words import number, scale

if TYPE_CHECKING:
    import pandas

_Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where the fastest strategy changes as links get faster.

    Attributes:
        below: the strategy that is the fastest on slower links.
        above: the one that is on faster links.
        bits_per_s: the bandwidth at which both take as long, between two that were measured.
        low: the lowest that the intervals of both allow; None where they do not cross in what was measured.
        high: the highest.
    """

    below: str
    above: str
    bits_per_s: float
    low: float | None
    high: float | None


def links(frame: pandas.DataFrame, look: Look = COLUMN) -> Figure:
    """Draw step time against link bandwidth.

    Args:
        frame: a row per strategy and bandwidth: `strategy`, `bits_per_s`, `value`, `ci_low`, `ci_high` (seconds).
        look: width and style.
    """
    marks = look.palette(texts(frame, "strategy"))
    factor, unit = in_unit(frame["value"], "s")
    by, rate = scale(float(frame["bits_per_s"].median()), "bit/s")
    found = crossings(frame)
    with canvas(look, frame, title="Speed against the bandwidth of links") as made:
        axes = made.axes
        for strategy, part in frame.sort_values("bits_per_s").groupby("strategy", sort=True):
            bands = [[factor * float(y) for y in part[name].fillna(part["value"])] for name in ("ci_low", "ci_high")]
            x, y = ([k * float(one) for one in part[name]] for k, name in ((by, "bits_per_s"), (factor, "value")))
            line(axes, x, y, marks[str(strategy)], str(strategy), bands)
        for one in found:
            axes.axvline(one.bits_per_s * by, color="#767676", linewidth=0.8, linestyle=":", gid="crossing")
            if one.low is not None and one.high is not None:
                axes.axvspan(one.low * by, one.high * by, color="#767676", alpha=0.15, linewidth=0)
        logarithmic(axes.xaxis)
        logarithmic(axes.yaxis)
        axes.set_xlabel(f"bandwidth of a link ({rate})")
        axes.set_ylabel(f"step time ({unit})")
        axes.grid(True, axis="both")
        legend(axes)
        told = "; ".join(sentence(one) for one in found) or "no strategy overtakes another in between"
        made.caption(f"Medians with 95 % intervals; {told}", frame)
    return made.figure


def sentence(one: Crossing) -> str:
    """Say who wins from where on: `with links above 5.6 Gbit/s ddp wins, below topk`."""
    factor, unit = scale(float(f"{one.bits_per_s:.2g}"), "bit/s")
    ends = ""
    if one.low is not None and one.high is not None:
        ends = f" ({number(one.low * factor, 2)} to {number(one.high * factor, 2)})"
    rate = f"{number(one.bits_per_s * factor, 2)}{ends} {unit}"
    return f"with links above {rate} {one.above} wins, below {one.below}"


def crossings(frame: pandas.DataFrame) -> list[Crossing]:
    """Return where the fastest strategy changes, by interpolation between neighbouring bandwidths that were measured.

    Between two points, time is taken to be a power of bandwidth (a straight line in logarithms of both), which is
    exact where exchanging is all and where computing is all. The interval is where the lower end of one meets the
    upper end of the other, and the reverse. Beyond what was measured nothing is said.

    Args:
        frame: as `links` takes it.
    """
    curves = {
        str(strategy): {float(one["bits_per_s"]): one for _, one in part.iterrows()}
        for strategy, part in frame[frame["value"] > 0].groupby("strategy", sort=True)
    }
    rates = sorted({rate for points in curves.values() for rate in points})
    best = [
        (rate, min(known, key=lambda name: float(curves[name][rate]["value"])))
        for rate in rates
        if len(known := [name for name, points in curves.items() if rate in points]) > 1
    ]
    return [
        found
        for (lower, below), (upper, above) in pairwise(best)
        if below != above
        for found in _between(curves, below, above, lower, upper)
    ]


def _between(
    curves: dict[str, dict[float, pandas.Series[float]]], below: str, above: str, lower: float, upper: float
) -> Iterator[Crossing]:
    shared = sorted(curves[below].keys() & curves[above].keys())
    if not {lower, upper} <= set(shared):
        return

    def of(name: str, column: str, rates: Sequence[float]) -> _Curve:
        return [(rate, float(curves[name][rate][column])) for rate in rates]

    middle = meetings(of(below, "value", (lower, upper)), of(above, "value", (lower, upper)))
    if not middle:
        return
    low = [x for x in meetings(of(below, "ci_high", shared), of(above, "ci_low", shared)) if x <= middle[0]]
    high = [x for x in meetings(of(below, "ci_low", shared), of(above, "ci_high", shared)) if x >= middle[0]]
    yield Crossing(
        below=below,
        above=above,
        bits_per_s=middle[0],
        low=max(low, default=None),
        high=min(high, default=None),
    )


def meetings(one: _Curve, other: _Curve) -> list[float]:
    """Return at which bandwidths two lines through points at the same bandwidths meet, straight in logarithms."""
    found = []
    for ((a, one_a), (_, other_a)), ((b, one_b), (_, other_b)) in pairwise(zip(one, other, strict=True)):
        if not all(math.isfinite(y) and y > 0 for y in (one_a, one_b, other_a, other_b)):
            continue
        at_a, at_b = math.log(one_a / other_a), math.log(one_b / other_b)
        if at_a == at_b or at_a * at_b > 0:
            continue
        share = at_a / (at_a - at_b)
        found.append(math.exp(math.log(a) + share * (math.log(b) - math.log(a))))
    return found
