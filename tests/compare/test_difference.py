"""Differences are checked against Student's formulas, and against samples whose answer is known."""

import math
from statistics import fmean, stdev

import pytest
from scipy import stats

from parbench.difference import Sample, difference


def of(values, **settings):
    return Sample(launches=[[(v, 1.0)] for v in values], **settings)


OLD, NEW = [1.0, 1.02, 0.99, 1.01, 1.005], [1.1, 1.13, 1.09, 1.11, 1.105]


def test_the_interval_is_at_least_welchs_on_logarithms():
    found = difference(of(OLD), of(NEW))
    a, b = [math.log(x) for x in OLD], [math.log(x) for x in NEW]
    ends = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert found.low <= math.exp(ends.low) * (1 + 1e-12)
    assert found.high >= math.exp(ends.high) * (1 - 1e-12)
    assert found.low > 1.05
    assert found.ratio == pytest.approx(1.105 / 1.005)  # of medians
    assert found.p == pytest.approx(2 / math.comb(10, 5))
    assert found.apart


def test_pairs_have_students_interval_of_their_differences():
    old, new = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.1, 2.3, 4.4, 9.0, 17.8, 35.0]
    found = difference(of(old), of(new), paired=True)
    logs = [math.log(b / a) for a, b in zip(old, new, strict=True)]
    far = stats.t.ppf(0.975, 5) * stdev(logs) / math.sqrt(6)
    assert found.low == pytest.approx(min(found.low, math.exp(fmean(logs) - far)))
    assert found.low > 1.05
    assert found.p == 2 / 64
    assert difference(of(old), of(new)).low < 0.2, "unpaired, the spread of the pairs hides it"


def test_the_detectable_change_shrinks_with_launches():
    few, many = difference(of(OLD), of(NEW)), difference(of(OLD * 4), of(NEW * 4))
    assert 0 < many.detectable < few.detectable


def test_three_launches_on_either_side_are_too_few_for_a_chance():
    assert difference(of(OLD[:3]), of(NEW[:3])).p is None
    assert difference(of(OLD[:3]), of(NEW)).p == pytest.approx(2 / 56)


def test_rounds_of_one_launch_give_an_interval_and_no_chance():
    old = Sample(launches=[[(1.0 + 0.01 * (k % 3), 1.0) for k in range(8)]])
    new = Sample(launches=[[(2.0 + 0.02 * (k % 3), 1.0) for k in range(8)]])
    found = difference(old, new)
    assert found.p is None
    assert found.low < 2 < found.high
    assert found.low > 1.9
    assert difference(Sample(launches=[[(1.0, 1.0)] * 5]), new).low is None, "five rounds are too few"


def test_one_value_each_has_no_interval():
    found = difference(of([1.0]), of([1.5]))
    assert (found.ratio, found.low, found.p, found.launches) == (1.5, None, None, (1, 1))


def test_nothing_measured_is_no_ratio():
    assert difference(Sample(launches=[]), of([1.0])).ratio is None


@pytest.mark.parametrize(("old", "new"), [([0.0] * 4, [1.0] * 4), ([1.0, -1.0, 1, 1], [2.0] * 4)])
def test_a_ratio_with_nothing_or_less_is_not_applicable(old, new):
    found = difference(of(old), of(new))
    assert found.ratio is None
    assert found.constant or found.p is not None


def test_what_never_varies_differs_by_anything():
    found = difference(of([2.0] * 4), of([2.1] * 4))
    assert found.constant
    assert (found.low, found.high) == (found.ratio, found.ratio)
    assert found.ratio == pytest.approx(1.05)
    assert difference(of([2.0] * 4), of([2.0] * 4)).equal
    assert not difference(of([2.0]), of([2.1])).constant, "one value says nothing of how it varies"
