"""Steadiness: one half of a measurement is as fast as the other, its steps have one speed, no rank lags behind."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median, pvariance

from parbench.gates import usable
from parbench.record import Round, Warned

# Halves differ where their medians are so far apart and ranks of their samples say that this is no chance (Mann and
# Whitney 1947); the smallest halves that can say so have four rounds each.
_DRIFT, _DRIFT_Z, _FEWEST = 0.1, 2.3, 8
# Two speeds: two clusters so far apart for their width (Ashman et al. 1994, "Detecting bimodality in astronomical
# datasets", D > 2; one normal distribution cut in two gives 2.7), each of a fifth of the samples, and a fifth apart.
_ASHMAN_D, _SMALLER, _APART, _FEWEST_SAMPLES = 4.0, 0.2, 0.2, 20
# A rank lags where it is last by a tenth of a step in four of five rounds.
_LAG, _OFTEN, _FEWEST_ROUNDS = 0.1, 0.8, 5


def steadiness(
    rounds: Sequence[Round], step_seconds: Sequence[Sequence[float]], *, period: int, alike: bool
) -> list[Warned]:
    """Return what says that a measurement was not of one steady thing.

    Args:
        rounds: the measured rounds, in order.
        step_seconds: per rank, the seconds of every measured step.
        period: steps after which a strategy's pattern repeats; where it is not 1, steps differ by design.
        alike: whether all ranks do the same, so that one that ends last is slow.
    """
    good = usable(rounds)
    found = [
        _drift([r.wall_s / r.steps for r in good]),
        _two_speeds(_steps(good, step_seconds, period)),
        _lagging(good) if alike else None,
    ]
    return [warning for warning in found if warning is not None]


def _steps(good: Sequence[Round], step_seconds: Sequence[Sequence[float]], period: int) -> list[float]:
    """Return the samples of speed: steps on the slowest rank, or rounds where steps differ by design."""
    deferred = any(r.drain_s > 0.05 * r.wall_s / r.steps for r in good)
    if period > 1 or deferred or not step_seconds:
        return [r.wall_s / r.steps for r in good]
    return [max(column) for column in zip(*step_seconds, strict=False)]


def _drift(seconds: Sequence[float]) -> Warned | None:
    if len(seconds) < _FEWEST:
        return None
    first, second = seconds[: len(seconds) // 2], seconds[len(seconds) // 2 :]
    before, after = median(first), median(second)
    if abs(after / before - 1) < _DRIFT or abs(_rank_sum_z(first, second)) < _DRIFT_Z:
        return None
    slower = after > before
    return Warned(
        code="drift",
        message=f"the second half of the rounds took {after:.3g} s per step, the first {before:.3g} s: "
        f"{abs(after / before - 1):.0%} {'slower' if slower else 'faster'}",
        advice="something changed meanwhile: other work, heat or a clock limit"
        if slower
        else "warm-up was too short: ask for more (--warmup N)",
    )


def _rank_sum_z(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how many standard deviations the sum of the second's ranks is from chance; ties count half."""
    m, n = len(first), len(second)
    low = sorted(first)
    wins = sum(bisect_left(low, b) + bisect_right(low, b) for b in second) / 2
    return (wins - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12)


def _two_speeds(seconds: Sequence[float]) -> Warned | None:
    if len(seconds) < _FEWEST_SAMPLES or min(seconds) <= 0:
        return None
    ordered = sorted(seconds)
    cut = _best_cut(ordered)
    fast, slow = ordered[:cut], ordered[cut:]
    apart, scatter = fmean(slow) - fmean(fast), pvariance(fast) + pvariance(slow)
    separated = apart > _ASHMAN_D * math.sqrt(scatter / 2) and apart > _APART * fmean(fast)
    if min(len(fast), len(slow)) < _SMALLER * len(ordered) or not separated:
        return None
    return Warned(
        code="two_speeds",
        message=f"steps have two speeds: {len(fast)} took about {fmean(fast):.3g} s, "
        f"{len(slow)} about {fmean(slow):.3g} s",
        advice="the median is one of them or between: look for a clock that switches, a neighbour, or batches of two "
        "shapes (steps.parquet has every step)",
    )


def _best_cut(ordered: Sequence[float]) -> int:
    """Return where cutting sorted samples in two leaves the least scatter within both parts (Otsu 1979)."""
    total, below = math.fsum(ordered), 0.0
    best, cut = -1.0, 1
    for k in range(1, len(ordered)):
        below += ordered[k - 1]
        between = k * (len(ordered) - k) * (below / k - (total - below) / (len(ordered) - k)) ** 2
        if between > best:
            best, cut = between, k
    return cut


def _lagging(good: Sequence[Round]) -> Warned | None:
    judged = [r for r in good if len(r.rank_wall_s) > 1]
    if len(judged) < _FEWEST_ROUNDS:
        return None
    step_s = median(r.wall_s / r.steps for r in judged)
    lags = [(rank, lag) for r in judged for rank, lag in [_last(r.rank_wall_s)] if lag > _LAG * step_s]
    if not lags:
        return None
    rank, times = Counter(rank for rank, _ in lags).most_common(1)[0]
    if times < _OFTEN * len(judged):
        return None
    lag_s = median(lag for who, lag in lags if who == rank)
    return Warned(
        code="slow_rank",
        message=f"rank {rank} ended {times} of {len(judged)} rounds last, {lag_s:.3g} s after the others: "
        f"{lag_s / step_s:.0%} of a step",
        advice="all ranks wait for it: look at its core or GPU, its clock, and what else runs there",
    )


def _last(walls: Sequence[float]) -> tuple[int, float]:
    """Return the rank that ended last, and how long after the typical other one."""
    rank = max(range(len(walls)), key=walls.__getitem__)
    return rank, walls[rank] - median(w for k, w in enumerate(walls) if k != rank)
