"""Statistics of timings: a median or a ratio of sums, and how far it could move if everything were measured again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Elements of one block of resamples: bounds memory (16 MiB of float64) without changing the random numbers drawn.
_BLOCK = 2_000_000
# From so many launches on they are resampled whole: what samples within them add is in how launches differ.
_MANY_LAUNCHES = 500
_RESAMPLES_OF_MANY = 400
# Up to here the binomial distribution behind the order-statistic interval is summed exactly.
_EXACT_BINOMIAL = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A statistic with its confidence interval.

    Attributes:
        value: the statistic of all samples, in their unit; None where there is no sample.
        low: lower end of the interval; None where the samples are too few for one.
        high: upper end.
        n: finite samples behind it, over all launches.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


def median_interval(
    launches: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = 2000, level: float = 0.95
) -> Interval:
    """Return the median of all samples with a hierarchical percentile bootstrap interval.

    Launches are resampled first and samples within them second, because samples of one process share what that
    process was dealt (memory layout, core placement): Kalibera and Jones, "Rigorous benchmarking in reasonable time",
    ISMM 2013. The percentile bootstrap is Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.
    It is too narrow for the median of few samples (of 7 samples its 95 % interval holds the median 87.5 % of the
    time), so the interval is never narrower than the distribution-free one between order statistics. With two or three
    launches it still understates how much launches differ: there is too little to resample. More launches cure that,
    more rounds do not. Of hundreds of launches each is taken whole or not at all (the cluster bootstrap: Davison and
    Hinkley, "Bootstrap methods and their application", 1997, section 3.8), which costs less.

    Args:
        launches: samples of each fresh launch, in one unit; values that are not finite count as missing.
        seed: seed of the resampling; the same seed and samples give the same interval.
        resamples: bootstrap resamples.
        level: confidence, between 0 and 1.

    Returns:
        `low` and `high` are None where no distribution-free interval of this level exists: fewer than 6 samples for
        95 %, because with n samples even [min, max] misses the median with probability 2 * 0.5 ** n.
    """
    kept = [finite for launch in launches if (finite := _finite(launch)).size]
    if not kept:
        return Interval(value=None, low=None, high=None, n=0)
    pooled = np.sort(np.concatenate(kept))
    value = float(np.median(pooled))
    tail = (1 - level) / 2
    outer = _order_statistic(pooled.size, tail)
    if outer == 0:
        return Interval(value=value, low=None, high=None, n=pooled.size)
    rng = np.random.default_rng(seed)
    draws = _medians_of_one(pooled, rng, resamples) if len(kept) == 1 else _medians_of_many(kept, rng, resamples)
    low, high = np.quantile(draws, (tail, 1 - tail))
    return Interval(
        value=value, low=float(min(low, pooled[outer - 1])), high=float(max(high, pooled[-outer])), n=pooled.size
    )


def ratio_of_sums_interval(
    launches: Sequence[Sequence[tuple[float, float]]], *, seed: int = 0, resamples: int = 2000, level: float = 0.95
) -> Interval:
    """Return sum(numerators) / sum(denominators), such as samples over seconds, with the same kind of interval.

    A rate is the ratio of the sums, never the mean of rates: the mean of rates overweights the fast rounds. The
    interval resamples (numerator, denominator) pairs within launches as `median_interval` does. Percentile intervals of
    ratios of few pairs are somewhat narrow (about 85 % instead of 95 % for 6 pairs, 93 % for 20).

    Args:
        launches: (numerator, denominator) pairs of each fresh launch; pairs that are not finite count as missing.
        seed: seed of the resampling.
        resamples: bootstrap resamples.
        level: confidence, between 0 and 1.

    Returns:
        `value` is None where there is no pair or the denominators sum to nothing positive.
    """
    kept = [finite for launch in launches if (finite := _finite_pairs(launch)).size]
    n = sum(len(pairs) for pairs in kept)
    above, below = (sum(float(pairs[:, side].sum()) for pairs in kept) for side in (0, 1))
    if below <= 0:
        return Interval(value=None, low=None, high=None, n=n)
    tail = (1 - level) / 2
    if _order_statistic(n, tail) == 0:
        return Interval(value=above / below, low=None, high=None, n=n)
    draws = _ratios(kept, np.random.default_rng(seed), resamples)
    low, high = np.quantile(draws, (tail, 1 - tail))
    return Interval(value=above / below, low=float(low), high=float(high), n=n)


def spread(launch_medians: Sequence[float]) -> float | None:
    """Return (max - min) / median over launches, a fraction; None for fewer than two finite values or a median of 0."""
    kept = [x for x in launch_medians if math.isfinite(x)]
    middle = median(kept) if len(kept) > 1 else 0.0
    return (max(kept) - min(kept)) / abs(middle) if middle else None


def _finite(samples: Sequence[float]) -> Floats:
    values = np.asarray(samples, dtype=np.float64).reshape(-1)
    return values[np.isfinite(values)]


def _finite_pairs(pairs: Sequence[tuple[float, float]]) -> Floats:
    values = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return values[np.isfinite(values).all(axis=1)]


def _order_statistic(n: int, tail: float) -> int:
    """Return the largest k such that the k-th smallest of n samples exceeds the median with probability <= tail.

    The samples below the median are Binomial(n, 1/2), whatever the distribution. 0 means that there is no such k.
    """
    if n > _EXACT_BINOMIAL:
        return math.floor(n / 2 + NormalDist().inv_cdf(tail) * math.sqrt(n) / 2)
    k, below, limit = 0, 0, tail * 2.0**n
    while k < n and (below := below + math.comb(n, k)) <= limit:
        k += 1
    return k


def _medians_of_one(ordered: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Return medians of plain bootstrap resamples of sorted samples, without drawing the resamples.

    A resample is n uniform numbers looked up in the samples, and the h-th smallest of n uniform numbers follows
    Beta(h, n + 1 - h); the next one cuts what is left above it by Beta(1, n - h). So two draws give exactly what n
    draws and a sort would, and a running median can afford its interval after every round.
    """
    n = ordered.size
    h = (n + 1) // 2
    lower = rng.beta(h, n + 1 - h, resamples)
    upper = lower if n % 2 else lower + (1 - lower) * rng.beta(1, n - h, resamples)
    at = [ordered[np.minimum((u * n).astype(np.int64), n - 1)] for u in (lower, upper)]
    return (at[0] + at[1]) / 2


def _medians_of_many(launches: Sequence[Floats], rng: np.random.Generator, resamples: int) -> Floats:
    """Return medians of hierarchical resamples: as many launches, then as many samples within each."""
    if len(launches) >= _MANY_LAUNCHES:
        return _medians_of_whole(launches, rng, min(resamples, _RESAMPLES_OF_MANY))
    sizes = np.array([launch.size for launch in launches])
    padded = np.zeros((sizes.size, int(sizes.max())))
    for row, launch in zip(padded, launches, strict=True):
        row[: launch.size] = launch
    draws = []
    for picked in _blocks(_pick_launches(sizes, rng, resamples), padded.size):
        at, inside = _pick_samples(sizes[picked], padded.shape[1], rng)
        # Launches differ in length: what pads a short one sorts to the end and is never counted.
        values = np.where(inside, padded[picked[..., None], at], np.inf).reshape(len(picked), -1)
        values.sort(axis=1)
        count = sizes[picked].sum(axis=1)
        ends = np.take_along_axis(values, np.stack(((count - 1) // 2, count // 2), axis=1), axis=1)
        draws.append(ends.mean(axis=1))
    return np.concatenate(draws)


def _medians_of_whole(launches: Sequence[Floats], rng: np.random.Generator, resamples: int) -> Floats:
    """Return medians of resamples that take launches whole."""
    values = np.concatenate(launches)
    order = np.argsort(values, kind="stable")
    launch_of = np.repeat(np.arange(len(launches)), [launch.size for launch in launches])[order]
    ordered, draws = values[order], []
    for times in _times(len(launches), rng, resamples):
        upto = np.cumsum(times[launch_of])
        count = upto[-1]
        ends = np.searchsorted(upto, [(count - 1) // 2, count // 2], side="right")
        draws.append(ordered[ends].mean())
    return np.array(draws)


def _times(launches: int, rng: np.random.Generator, resamples: int) -> Iterator[Ints]:
    """Yield how often each launch is taken."""
    for _ in range(resamples):
        yield np.bincount(rng.integers(launches, size=launches), minlength=launches)


def _ratios(launches: Sequence[Floats], rng: np.random.Generator, resamples: int) -> Floats:
    """Return ratios of sums of hierarchical resamples; with one launch, of plain ones."""
    if len(launches) >= _MANY_LAUNCHES:
        whole = np.array([launch.sum(axis=0) for launch in launches])
        sums_of = [times @ whole for times in _times(len(launches), rng, min(resamples, _RESAMPLES_OF_MANY))]
        return np.array([above / below for above, below in sums_of])
    sizes = np.array([len(launch) for launch in launches])
    padded = np.zeros((sizes.size, int(sizes.max()), 2))
    for row, launch in zip(padded, launches, strict=True):
        row[: len(launch)] = launch
    draws = []
    for picked in _blocks(_pick_launches(sizes, rng, resamples), padded.size):
        at, inside = _pick_samples(sizes[picked], padded.shape[1], rng)
        sums = (padded[picked[..., None], at] * inside[..., None]).sum(axis=(1, 2))
        draws.append(sums[:, 0] / sums[:, 1])
    return np.concatenate(draws)


def _pick_launches(sizes: Ints, rng: np.random.Generator, resamples: int) -> Ints:
    return rng.integers(sizes.size, size=(resamples, sizes.size))


def _pick_samples(sizes: Ints, longest: int, rng: np.random.Generator) -> tuple[Ints, NDArray[np.bool_]]:
    """Return indices below `sizes`, drawn uniformly, and which of the `longest` of them count."""
    at = (rng.random((*sizes.shape, longest)) * sizes[..., None]).astype(np.int64)
    return at, np.arange(longest) < sizes[..., None]


def _blocks(picked: Ints, each: int) -> list[Ints]:
    rows = max(1, _BLOCK // each)
    return [picked[start : start + rows] for start in range(0, len(picked), rows)]
