"""Nothing changed: how often is there an alarm? And something did: how often is it found? By simulation."""

import numpy as np
import pytest
from scipy.stats import beta
from simulated import KINDS, check_alarms, compare_alarms

from amounts import amount

STATED, POINT = 0.05, 0.01


def upper_bound(alarms, trials):
    """Return the one-sided 95 % limit of the rate (Clopper and Pearson, Biometrika 26, 1934)."""
    return float(beta.ppf(0.95, alarms + 1, trials - alarms)) if alarms < trials else 1.0


def rates(alarm, trials, seed):
    """Return alarms per kind of noise, as many trials each."""
    rng = np.random.default_rng(seed)
    return {kind: sum(alarm(rng, kind) for _ in range(trials // len(KINDS) + 1)) for kind in KINDS}


def judge(found, trials, capsys):
    each = trials // len(KINDS) + 1
    with capsys.disabled():
        print(f"\nalarms in {each} trials each: {found}; all: {sum(found.values())} of {each * len(KINDS)}")
    assert upper_bound(sum(found.values()), each * len(KINDS)) <= STATED + POINT
    # No kind of noise hides behind the others: each by its own lower bound.
    for kind, alarms in found.items():
        assert float(beta.ppf(0.05, max(alarms, 1), each - alarms + 1)) <= STATED + POINT, kind


def test_the_bound_is_clopper_and_pearsons():
    assert upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))  # no alarm in n: 1 - 0.05 ** (1 / n)
    assert upper_bound(10, 10) == 1.0


@pytest.mark.parametrize(("base", "fresh"), [(10, 3), (10, 1), (5, 3)])
def test_a_few_hundred_checks_of_nothing_alarm_no_more_often_than_stated(base, fresh):
    found = rates(lambda rng, kind: check_alarms(rng, kind, base, fresh), 600, seed=base + fresh)
    assert float(beta.ppf(0.05, max(sum(found.values()), 1), 600)) <= STATED


def test_a_tenth_slower_is_found_nearly_always():
    rng = np.random.default_rng(5)
    assert sum(check_alarms(rng, "normal", 10, 5, slow=1.1) for _ in range(60)) >= 55
    assert sum(compare_alarms(rng, "normal", 8, slow=1.1) for _ in range(30)) >= 27


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_ten_thousand_comparisons_of_nothing_alarm_no_more_often_than_stated(capsys):
    trials = amount(10_000, in_ci=3_000)
    judge(rates(lambda rng, kind: compare_alarms(rng, kind, 4), trials, seed=1), trials, capsys)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_ten_thousand_checks_of_nothing_alarm_no_more_often_than_stated(capsys):
    found = rates(lambda rng, kind: check_alarms(rng, kind, 10, 3), 10_000, seed=2)
    judge(found, 10_000, capsys)
