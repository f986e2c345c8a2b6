"""Intervals are checked against numbers worked out by hand, against scipy, and against what they promise: coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from parbench.statistics import median_interval, ratio_of_sums_interval, spread


def test_median_of_all_samples_by_hand() -> None:
    found = median_interval([[3.0, 1.0], [2.0, 10.0, 4.0]])
    assert (found.value, found.n) == (3.0, 5)


def test_no_samples() -> None:
    assert median_interval([]) == median_interval([[], []])
    found = median_interval([[]])
    assert (found.value, found.low, found.high, found.n) == (None, None, None, 0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_no_interval_below_six_samples(n: int) -> None:
    # Even [min, max] of n samples misses the median with probability 2 * 0.5**n: 6.25 % for 5, 3.1 % for 6.
    found = median_interval([list(map(float, range(n)))])
    assert found.value == (n - 1) / 2
    assert found.low is None
    assert found.high is None
    assert ratio_of_sums_interval([[(1.0, 2.0)] * n]).low is None


def test_six_samples_have_an_interval_over_launches_too() -> None:
    assert median_interval([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]).low == 1.0
    assert median_interval([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).low == 1.0


def test_values_that_are_not_finite_are_missing() -> None:
    assert median_interval([[1.0, math.nan, 3.0, math.inf]]) == median_interval([[1.0, 3.0]])


def test_constant_samples_have_an_interval_of_no_width() -> None:
    found = median_interval([[2.0] * 10, [2.0] * 3])
    assert (found.low, found.high) == (2.0, 2.0)


def test_deterministic_for_a_seed() -> None:
    samples = [list(np.random.default_rng(k).normal(size=30 + k)) for k in range(4)]
    assert median_interval(samples) == median_interval(samples)
    assert median_interval(samples, seed=1) != median_interval(samples, seed=2)


def test_order_statistics_bound_small_samples_by_hand() -> None:
    # n = 9: P(Bin(9, 1/2) <= 1) = 10/512 = 1.95 % <= 2.5 %, P(<= 2) = 9 % > 2.5 %: the 2nd and the 8th smallest.
    found = median_interval([[float(k) for k in range(1, 10)]])
    assert found.low <= 2.0
    assert found.high >= 8.0


@pytest.mark.parametrize("n", [40, 101, 500])
def test_one_launch_is_the_plain_bootstrap_of_scipy(n: int) -> None:
    samples = np.random.default_rng(n).lognormal(size=n)
    ours = median_interval([list(samples)], resamples=20000)
    theirs = scipy.stats.bootstrap(
        (samples,), np.median, method="percentile", n_resamples=20000, rng=np.random.default_rng(1)
    ).confidence_interval
    # Both ends are order statistics: equal up to their neighbours.
    ranks = [np.searchsorted(np.sort(samples), x) for x in (ours.low, theirs.low, ours.high, theirs.high)]
    assert abs(ranks[0] - ranks[1]) <= 1
    assert abs(ranks[2] - ranks[3]) <= 1


def test_hierarchical_equals_a_slow_plain_loop() -> None:
    rng = np.random.default_rng(3)
    launches = [list(rng.normal(loc=k, size=size)) for k, size in enumerate((20, 35, 27, 40))]
    draws = []
    for _ in range(4000):
        picked = [launches[k] for k in rng.integers(4, size=4)]
        draws.append(np.median(np.concatenate([rng.choice(one, size=len(one)) for one in picked])))
    ours = median_interval(launches, resamples=4000)
    assert np.quantile(draws, 0.025) == pytest.approx(ours.low, abs=0.12)
    assert np.quantile(draws, 0.975) == pytest.approx(ours.high, abs=0.12)


def test_launches_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    launches = [list(rng.normal(loc=shift, scale=0.01, size=50)) for shift in (1.0, 1.1, 1.2, 1.3, 1.4)]
    apart, mixed = median_interval(launches), median_interval([[x for one in launches for x in one]])
    assert apart.high - apart.low > 1.5 * (mixed.high - mixed.low)


@pytest.mark.parametrize("n", [7, 20, 41])
@pytest.mark.parametrize("draw", ["normal", "lognormal", "exponential"])
def test_coverage_of_the_median(n: int, draw: str) -> None:
    """Of 1000 intervals at least 95 % hold the true median, up to a binomial error of 1 in 1000."""
    truth = {"normal": 0.0, "lognormal": 1.0, "exponential": math.log(2)}[draw]
    rng, held, trials = np.random.default_rng(n), 0, 1000
    for trial in range(trials):
        found = median_interval([list(getattr(rng, draw)(size=n))], seed=trial, resamples=500)
        held += found.low <= truth <= found.high
    assert held >= scipy.stats.binom.ppf(0.001, trials, 0.95)
    if n > 7:  # with 7 samples the only interval is [min, max], 98.4 %
        assert held <= scipy.stats.binom.ppf(0.999, trials, 0.975)


def test_coverage_over_ten_launches() -> None:
    """With launches that differ more than rounds do, pooling would be wrong most of the time; the hierarchy is not."""
    rng, trials, held, pooled_held = np.random.default_rng(5), 300, 0, 0
    for trial in range(trials):
        launches = [list(rng.normal(shift, 0.3, 12)) for shift in rng.normal(0, 1, 10)]
        found = median_interval(launches, seed=trial, resamples=400)
        pooled = median_interval([[x for one in launches for x in one]], seed=trial, resamples=400)
        held += found.low <= 0 <= found.high
        pooled_held += pooled.low <= 0 <= pooled.high
    # Ten launches are few: 90 % is what a percentile bootstrap of ten gives.
    assert held >= scipy.stats.binom.ppf(0.001, trials, 0.90)
    assert pooled_held < 0.7 * trials


def test_ratio_of_sums_is_not_the_mean_of_rates() -> None:
    # 8 samples in 1 s and 8 in 3 s: 16 / 4 = 4, not (8 + 8/3) / 2.
    found = ratio_of_sums_interval([[(8.0, 1.0), (8.0, 3.0)]])
    assert (found.value, found.n) == (4.0, 2)


def test_ratio_over_launches_of_unequal_length() -> None:
    found = ratio_of_sums_interval([[(8.0, 1.0)] * 7, [(8.0, 2.0)] * 3])
    assert found.value == pytest.approx(80 / 13)
    assert (found.low, found.high) == (4.0, 8.0)


def test_ratio_without_a_denominator() -> None:
    assert ratio_of_sums_interval([]).value is None
    assert ratio_of_sums_interval([[(1.0, 0.0)]]).value is None


def test_coverage_of_the_ratio() -> None:
    rng, trials, held = np.random.default_rng(9), 600, 0
    for trial in range(trials):
        seconds = rng.gamma(9, 1 / 9, size=40)
        found = ratio_of_sums_interval([[(8.0, s) for s in seconds]], seed=trial, resamples=400)
        held += found.low <= 8.0 <= found.high
    assert scipy.stats.binom.ppf(0.001, trials, 0.93) <= held <= scipy.stats.binom.ppf(0.999, trials, 0.97)


@pytest.mark.parametrize(
    ("medians", "expected"),
    [([1.0, 1.1, 0.9], 0.2), ([1.0], None), ([], None), ([0.0, 0.0], None), ([2.0, math.nan], None), ([4.0, 4.0], 0.0)],
)
def test_spread(medians: list[float], expected: float | None) -> None:
    assert spread(medians) == (None if expected is None else pytest.approx(expected))


def test_speed_of_a_running_median(benchmark: Callable[..., object]) -> None:
    samples = [list(np.random.default_rng(0).normal(size=1000))]
    benchmark(median_interval, samples)


def test_hundreds_of_launches_have_the_interval_that_scipy_gives_of_launches_taken_whole() -> None:
    """Samples of one launch are nearly alike: an interval of 2,400 separate samples would be half as wide."""
    drawn = np.random.default_rng(5)
    launches = [list(1 + 0.1 * effect + 0.001 * drawn.standard_normal(4)) for effect in drawn.standard_normal(600)]
    found = median_interval(launches)
    of_launches = [float(np.median(one)) for one in launches]
    right = scipy.stats.bootstrap(
        (of_launches,), np.median, n_resamples=4000, method="percentile", rng=np.random.default_rng(6)
    ).confidence_interval
    assert found.low is not None
    assert found.high is not None
    assert (found.low, found.high) == pytest.approx((right.low, right.high), abs=0.004)
    rate = ratio_of_sums_interval([[(8.0, seconds) for seconds in one] for one in launches])
    whole = scipy.stats.bootstrap(
        (np.array([sum(one) for one in launches]),),
        lambda seconds, axis: 32 * seconds.shape[axis] / seconds.sum(axis=axis),
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(7),
    ).confidence_interval
    assert (rate.low, rate.high) == pytest.approx((whole.low, whole.high), rel=0.003)
