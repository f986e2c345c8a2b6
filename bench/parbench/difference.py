"""A Difference is what separates old from new measurements of one metric, and how sure that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np

from parbench.resampling import Pairs, least_p, rank_sum_p, ratio_draws, sign_flip_p

LEVEL = 0.95
# The chance of finding a change as large as `detectable`.
POWER = 0.8
# Fewer rounds of one launch have no interval, as for a median (statistics.median_interval).
_FEWEST_ROUNDS = 6
_FEWEST_BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All measurements of one metric on one side.

    Attributes:
        launches: per fresh launch its rounds in order of time, each (numerator, denominator): (samples, seconds) of a
            rate, (seconds, steps) of a step time, (value, 1) where a launch gives one value.
        rate: the value is the ratio of sums; else the median of ratios.
    """

    launches: Sequence[Pairs]
    rate: bool = False

    @property
    def values(self) -> list[float]:
        """The value of each launch."""
        return [value_of(one, rate=self.rate) for one in self.launches]

    @property
    def rounds(self) -> int:
        """How many rounds its longest launch has."""
        return max(map(len, self.launches), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What separates new from old.

    Attributes:
        ratio: new / old; None where old or new is not positive.
        low: lower end of its 95 % interval; None where there is too little for one.
        high: upper end.
        p: the chance that launches as unequal as these come from one distribution, whatever that is; None where no
            number of agreeing launches could make it small.
        equal: every value on both sides is the same.
        constant: nothing varies within either side, so that any difference is one.
        detectable: the smallest change, as a fraction, that as many measurements as these find with 80 % chance.
        launches: how many on either side.
    """

    ratio: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    equal: bool = False
    constant: bool = False
    detectable: float | None = None
    launches: tuple[int, int]

    @property
    def apart(self) -> bool:
        """Whether the interval leaves out "no change"."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def difference(old: Sample, new: Sample, *, paired: bool = False, alpha: float = 1 - LEVEL) -> Difference:
    """Compare two samples.

    Args:
        old: what is compared with.
        new: what is judged.
        paired: launch k of both ran together or one after the other, and round k of both likewise.
        alpha: p is given where as many launches can bring it below this.

    The interval is that of a bootstrap over launches and blocks of rounds, never narrower than Student's over launches
    (of one launch, over batches of rounds): with few launches the bootstrap alone is too narrow, because the launches
    that there are cannot show how far others would lie.
    """
    before, after = old.values, new.values
    counts = (len(before), len(after))
    pooled = [x for one in (old, new) for launch in one.launches for x in _quotients(launch)]
    if not before or not after:
        return Difference(ratio=None, launches=counts)
    equal = min(pooled) == max(pooled)
    constant = _constant(old) and _constant(new) and min(counts) > 1
    paired = paired and counts[0] == counts[1]
    # What cannot be chance is not tested, and does not count among the tests that are corrected for.
    p = None if equal or constant else _chance(before, after, paired=paired, alpha=alpha)
    if min(pooled) <= 0:
        return Difference(ratio=None, p=p, equal=equal, constant=constant, launches=counts)
    ratio = value_of(_all(new), rate=new.rate) / value_of(_all(old), rate=old.rate)
    if equal or constant:
        return Difference(
            ratio=ratio, low=ratio, high=ratio, p=p, equal=equal, constant=constant, launches=counts, detectable=0.0
        )
    student = _student(old, new, paired=paired, alpha=alpha)
    if student is None:
        return Difference(ratio=ratio, p=p, launches=counts)
    low, high, detectable = student
    draws = ratio_draws(old.launches, new.launches, rate=old.rate, paired=paired)
    ends = np.quantile(draws, (alpha / 2, 1 - alpha / 2))
    return Difference(
        ratio=ratio,
        low=min(low, float(ends[0])),
        high=max(high, float(ends[1])),
        p=p,
        detectable=detectable,
        launches=counts,
    )


def value_of(rounds: Pairs, *, rate: bool) -> float:
    """Return the value of some rounds: the ratio of sums for a rate, else the median of ratios."""
    if rate:
        return math.fsum(a for a, _ in rounds) / math.fsum(b for _, b in rounds)
    return median(_quotients(rounds))


def _chance(before: Sequence[float], after: Sequence[float], *, paired: bool, alpha: float) -> float | None:
    counts = len(before), len(after)
    if paired and least_p(*counts, paired=True) <= alpha:
        return sign_flip_p([b - a for a, b in zip(before, after, strict=True)])
    if least_p(*counts, paired=False) > alpha:
        return None
    return rank_sum_p(before, after)


def _student(old: Sample, new: Sample, *, paired: bool, alpha: float) -> tuple[float, float, float] | None:
    """Return Student's interval of the ratio, on logarithms, and the detectable change."""
    one_launch = max(len(old.launches), len(new.launches)) == 1
    if one_launch:
        logs = _batches(old), _batches(new)
        if min(map(len, logs)) < _FEWEST_BATCHES:
            return None
    else:
        logs = [math.log(x) for x in old.values], [math.log(x) for x in new.values]
    middle, error, freedom = _paired(*logs) if paired else _welch(*logs)
    if freedom is None:
        return None
    far = _t(1 - alpha / 2, freedom) * error
    return math.exp(middle - far), math.exp(middle + far), math.expm1(far + _t(POWER, freedom) * error)


def _batches(sample: Sample) -> list[float]:
    """Return logarithms of the values of neighbouring rounds taken together.

    Batches depend on each other far less than rounds do (the method of batch means).
    """
    rounds = sample.launches[0]
    if len(rounds) < _FEWEST_ROUNDS:
        return []
    count = max(_FEWEST_BATCHES, round(math.sqrt(len(rounds))))
    ends = [round(k * len(rounds) / count) for k in range(count + 1)]
    return [math.log(value_of(rounds[a:b], rate=sample.rate)) for a, b in itertools.pairwise(ends)]


def _paired(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float | None]:
    differences = [b - a for a, b in zip(before, after, strict=True)]
    n = len(differences)
    if n < 2:
        return 0.0, 0.0, None
    return fmean(differences), stdev(differences) / math.sqrt(n), n - 1


def _welch(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float | None]:
    """Return middle, standard error and degrees of freedom (Welch, Biometrika 34, 1947).

    One launch against several has the spread of the several (Student's interval of one more observation).
    """
    middle = fmean(after) - fmean(before)
    n, m = len(before), len(after)
    if min(n, m) == 1:
        more = before if n > 1 else after
        return (middle, stdev(more) * math.sqrt(1 + 1 / len(more)), len(more) - 1) if len(more) > 1 else (0, 0, None)
    a, b = stdev(before) ** 2 / n, stdev(after) ** 2 / m
    if a + b == 0:
        return middle, 0.0, n + m - 2
    return middle, math.sqrt(a + b), (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))


def _t(quantile: float, freedom: float) -> float:
    # Slow to import, and only a comparison needs it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, quantile))


def _quotients(rounds: Pairs) -> list[float]:
    return [a / b for a, b in rounds]


def _all(sample: Sample) -> list[tuple[float, float]]:
    return [pair for launch in sample.launches for pair in launch]


def _constant(sample: Sample) -> bool:
    found = {x for launch in sample.launches for x in _quotients(launch)}
    return len(found) == 1
