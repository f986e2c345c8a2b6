"""Noise is how far one more run lies from a baseline without any change, and how unlikely a difference is by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

from parbench.resampling import least_p, rank_sum_p
from parbench.verdict import ALPHA

# With fewer runs there is no saying how far a further one may lie: Student's t of two degrees of freedom is useless.
FEWEST_RUNS = 5
_MOST_CORRELATED = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What separates new runs from a baseline.

    Attributes:
        old: median of the baseline.
        new: median of the new runs.
        p: the chance of such a difference without a change; None where nothing can be said.
        ratio: new / old.
        low: lower end of the ratio's interval.
        high: upper end.
        floor: how far as many new runs lie from the baseline by noise alone, a fraction.
        outside: all new runs lie beyond all of the baseline, on one side.
        few: too few runs for a test by ranks.
    """

    old: float
    new: float
    p: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    outside: bool = False
    few: bool = False


def noise_floor(values: Sequence[float], alpha: float = ALPHA) -> float | None:
    """Return how far one more run may lie from these without any change, a fraction; None for fewer than five."""
    if len(values) < FEWEST_RUNS or min(values) <= 0:
        return None
    _, _, far = _student([math.log(x) for x in values], [0.0], alpha)
    return math.expm1(far)


def noise_between(before: Sequence[float], after: Sequence[float], alpha: float = ALPHA) -> Noise | None:
    """Return what separates the runs `after` from the baseline `before`; None without any on one side.

    The interval is Student's with the baseline's spread. The chance is that of the exact rank-sum test too where there
    are runs enough for it to be small; it holds for any distribution. Else `outside` stands in for it.
    """
    if not before or not after:
        return None
    a, b = median(before), median(after)
    if min(*before, *after) <= 0:
        return Noise(old=a, new=b, p=None)
    logs = [math.log(x) for x in before], [math.log(x) for x in after]
    if len(before) < FEWEST_RUNS or max(before) == min(before):
        return Noise(old=a, new=b, ratio=b / a, p=None)
    middle, error, far = _student(logs[0], logs[1], alpha)
    from scipy.special import stdtr

    p = 2 * float(stdtr(_freedom(logs[0]), -abs(middle) / error))
    few = least_p(len(before), len(after), paired=False) > alpha
    return Noise(
        old=a,
        new=b,
        p=p if few else max(p, rank_sum_p(before, after)),
        ratio=b / a,
        low=math.exp(middle - far),
        high=math.exp(middle + far),
        floor=math.expm1(far),
        outside=min(after) > max(before) or max(after) < min(before),
        few=few,
    )


def _student(before: Sequence[float], after: Sequence[float], alpha: float) -> tuple[float, float, float]:
    """Return the difference of the means of logarithms, its standard error and the half-width of its interval.

    The spread is the baseline's: without a change, new runs are more of the same.
    """
    from scipy.special import stdtrit

    error = stdev(before) * math.sqrt((1 / len(before) + 1 / len(after)) * _inflation(before))
    return fmean(after) - fmean(before), error, float(stdtrit(_freedom(before), 1 - alpha / 2)) * error


def _freedom(values: Sequence[float]) -> float:
    """Return Student's degrees of freedom: of runs that follow each other only so many count."""
    return max(1.0, (len(values) - 1) / _inflation(values))


def _inflation(values: Sequence[float]) -> float:
    """Return by how much the variance of a mean of neighbours exceeds that of independent runs: (1 + r) / (1 - r).

    Machines have good and bad days, so that runs follow each other. r is the correlation of one run with the next,
    which few runs underestimate by about 1 / n (Kendall, Biometrika 41, 1954).
    """
    middle = fmean(values)
    off = [x - middle for x in values]
    whole = math.fsum(x * x for x in off)
    if not whole:
        return 1.0
    r = math.fsum(a * b for a, b in pairwise(off)) / whole + 1 / len(values)
    r = min(max(r, 0.0), _MOST_CORRELATED)
    return (1 + r) / (1 - r)
