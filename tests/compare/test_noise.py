"""The noise of runs is checked against Student's formulas and the ranks of runs on fingers."""

import math
from statistics import fmean, stdev

import pytest
from scipy import stats

from parbench.noise import noise_between, noise_floor

# Neighbours lean to opposite sides, so that they are not taken to follow each other.
STEADY = [1.00, 1.02, 0.99, 1.01, 0.98, 1.021, 0.991, 1.011, 0.981, 1.012]


def test_the_floor_is_students_interval_of_one_more_run():
    logs = [math.log(x) for x in STEADY]
    far = stats.t.ppf(0.975, 9) * stdev(logs) * math.sqrt(1 + 1 / 10)
    assert noise_floor(STEADY) == pytest.approx(math.expm1(far))
    assert noise_floor(STEADY[:4]) is None


def test_three_runs_beyond_ten_have_the_chance_of_their_ranks():
    found = noise_between(STEADY, [1.2, 1.21, 1.22])
    assert found.p == pytest.approx(2 / math.comb(13, 3))
    assert not found.few
    assert found.outside
    assert found.ratio == pytest.approx(1.21 / 1.005)
    assert found.low < found.ratio < found.high


def test_one_run_among_ten_can_have_no_small_chance_by_ranks():
    found = noise_between(STEADY, [1.5])
    assert found.few
    assert found.outside
    logs = [math.log(x) for x in STEADY]
    t = (math.log(1.5) - fmean(logs)) / (stdev(logs) * math.sqrt(1.1))
    assert found.p == pytest.approx(2 * stats.t.sf(t, 9))


def test_runs_that_follow_each_other_count_for_less():
    wave = [1.0, 1.0, 1.0, 1.0, 1.0, 1.05, 1.05, 1.05, 1.05, 1.05]
    mixed = [1.0, 1.05] * 5
    assert noise_floor(wave) > 2 * noise_floor(mixed)


def test_too_few_runs_or_none_give_no_interval():
    assert noise_between([], [1.0]) is None
    assert noise_between([1.0], []) is None
    few = noise_between([1.0, 1.1, 1.05], [2.0])
    assert (few.p, few.low, few.ratio) == (None, None, pytest.approx(2 / 1.05))
    assert noise_between([0.0] * 6, [1.0]).ratio is None
