"""Resampling says how far a ratio of two medians or rates could move, and how often chance alone would do the same.

Timings of one process follow each other: a slow round is followed by slow ones. Blocks of neighbouring rounds are
therefore resampled, never single rounds (Künsch, "The jackknife and the bootstrap for general stationary
observations", Annals of Statistics 17, 1989), and launches above them (Kalibera and Jones, "Rigorous benchmarking in
reasonable time", ISMM 2013).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]

# Signs of pairs that are all tried; of more, this many are drawn.
_MOST_EXACT = 20_000
_DRAWN = 9_999


def block_length(rounds: int) -> int:
    """Return how many neighbouring rounds are resampled together: the square root, so that blocks grow with rounds."""
    return max(1, round(math.sqrt(rounds)))


def ratio_draws(
    old: Sequence[Pairs], new: Sequence[Pairs], *, rate: bool, paired: bool, resamples: int = 1000, seed: int = 0
) -> Floats:
    """Return bootstrap draws of new / old over launches and blocks of rounds, sorted.

    Args:
        old: per launch, (amount, seconds) of each round in order of time: samples and wall time for a rate, wall time
            and steps for a time; all finite and positive.
        new: likewise.
        rate: a side's value is the ratio of the sums of all its rounds; else it is the median of their ratios.
        paired: launch k of both sides ran together, so that both are resampled alike.
        resamples: how many draws.
        seed: the same seed and samples give the same draws.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(old), size=(resamples, len(old)))
    values = []
    for side, launches in enumerate((old, new)):
        if side and not paired:
            chosen = rng.integers(len(launches), size=(resamples, len(launches)))
        # Of a pair the same rounds are drawn: what disturbed both cancels.
        drawing = np.random.default_rng((seed, 0 if paired else side))
        values.append(_values([np.asarray(one, dtype=np.float64) for one in launches], chosen, drawing, rate=rate))
    return np.sort(values[1] / values[0])


def _values(launches: Sequence[Floats], chosen: NDArray[np.int64], rng: np.random.Generator, *, rate: bool) -> Floats:
    """Return one side's value in every resample: `chosen` launches, circular blocks of rounds within each."""
    longest = max(map(len, launches))
    padded = np.full((len(launches), longest, 2), np.nan)
    for row, launch in zip(padded, launches, strict=True):
        row[: len(launch)] = launch
    sizes = np.array([len(launch) for launch in launches])[chosen]
    blocks = np.array([block_length(len(launch)) for launch in launches])[chosen]
    at = np.arange(longest)
    # A block starts anywhere and goes round the end; position k of a launch lies in its block k // length.
    starts = (rng.random((*chosen.shape, longest)) * sizes[..., None]).astype(np.int64)
    first = np.take_along_axis(starts, np.broadcast_to(at // blocks[..., None], starts.shape), axis=-1)
    picked = (first + at % blocks[..., None]) % sizes[..., None]
    drawn = padded[chosen[..., None], picked]
    drawn[~(at < sizes[..., None])] = np.nan
    flat = drawn.reshape(len(chosen), -1, 2)
    if rate:
        sums = np.nansum(flat, axis=1)
        return np.asarray(sums[:, 0] / sums[:, 1], dtype=np.float64)
    # Launches of one length have no padding, and the plain median is several times as fast.
    middle = np.median if sizes.min() == longest else np.nanmedian
    return np.asarray(middle(flat[..., 0] / flat[..., 1], axis=1), dtype=np.float64)


def rank_sum_p(old: Sequence[float], new: Sequence[float]) -> float:
    """Return how often as unequal a split of the same values arises by chance: the two-sided rank-sum test.

    Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945. It holds for any
    distribution, with outliers and with two modes, as long as old and new launches could have been exchanged. All
    splits are counted, equal values with the middle of their ranks.
    """
    doubled = [round(2 * rank) for rank in _mid_ranks([*old, *new])]
    m, most = len(new), sum(doubled)
    # ways[j, s]: how many j of the values have ranks of the (doubled) sum s.
    ways = np.zeros((m + 1, most + 1))
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : most + 1 - rank].copy()
    off = np.abs(np.arange(most + 1) - m * (len(doubled) + 1))
    seen = abs(sum(doubled[len(old) :]) - m * (len(doubled) + 1))
    return float(ways[m, off >= seen].sum() / ways[m].sum())


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
    """Return how often as large a mean arises when the sign of each difference is left to chance, two-sided.

    Fisher, "The design of experiments", 1935, section 21. It holds wherever old and new of a pair could have been
    exchanged.
    """
    values = np.asarray(differences, dtype=np.float64)
    seen = abs(values.sum()) * (1 - 1e-12)
    if 2 ** len(values) <= _MOST_EXACT:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(values))))
        return float(np.mean(np.abs(signs @ values) >= seen))
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(_DRAWN, len(values)))
    return float((1 + np.count_nonzero(np.abs(signs @ values) >= seen)) / (1 + _DRAWN))


def least_p(old: int, new: int, *, paired: bool) -> float:
    """Return the smallest p that a test of so many launches can give."""
    return 2 ** (1 - old) if paired else min(1.0, 2 / math.comb(old + new, new))


def adjusted(p: Sequence[float]) -> list[float]:
    """Return p values corrected for how many there are (Benjamini and Hochberg, J. R. Statist. Soc. B 57, 1995).

    Where nothing has changed anywhere, the chance of any alarm stays below the level; where something has, the
    expected share of false alarms among all alarms does.
    """
    order = sorted(range(len(p)), key=lambda k: p[k], reverse=True)
    found, least = [1.0] * len(p), 1.0
    for place, k in enumerate(order):
        least = min(least, p[k] * len(p) / (len(p) - place))
        found[k] = least
    return found


def _mid_ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1; equal values share the middle of theirs."""
    order = sorted(range(len(values)), key=lambda k: values[k])
    ranks = [0.0] * len(values)
    start = 0
    for _, group in itertools.groupby(order, key=lambda k: values[k]):
        tied = list(group)
        for k in tied:
            ranks[k] = start + (len(tied) + 1) / 2
        start += len(tied)
    return ranks
