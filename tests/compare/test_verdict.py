"""Verdicts know their direction, their limits and when to say nothing."""

import pytest

from parbench.difference import Difference, Sample
from parbench.verdict import drifted, verdict, word


def a_difference(ratio=1.1, low=1.05, high=1.15, p=0.01, launches=(5, 5), **more):
    return Difference(ratio=ratio, low=low, high=high, p=p, launches=launches, **more)


def given(found, *, name="step_time_s", unit="s", better="lower", change=None, **more):
    by = change if change is not None else (found.ratio or 1) - 1
    return verdict(name, found, unit=unit, better=better, p=found.p, change=by, **more)[0]


@pytest.mark.parametrize(
    ("better", "ratio", "expected"),
    [
        ("lower", 1.1, "worse"),
        ("lower", 0.9, "better"),
        ("higher", 1.1, "better"),
        ("higher", 0.9, "worse"),
        (None, 1.1, "changed"),
    ],
)
def test_the_direction_is_the_metrics(better, ratio, expected):
    low, high = sorted((ratio * 0.99, ratio * 1.01))
    assert given(a_difference(ratio, low, high), better=better) == expected


def test_words_are_the_metrics_own():
    words = [
        word(unit, "better", better) for unit, better in (("s", "lower"), ("samples/s", "higher"), ("bytes", "lower"))
    ]
    assert words == ["faster", "faster", "fewer"]
    assert word("nats", "worse", "lower") == "higher"
    assert word("J", "better", "lower") == "lower"
    assert word("s", "inconclusive", "lower") == "inconclusive"


def test_an_interval_over_one_is_inconclusive_and_a_narrow_one_the_same():
    assert given(a_difference(1.05, 0.97, 1.12)) == "inconclusive"
    assert given(a_difference(1.001, 0.99, 1.01)) == "same"


def test_a_small_change_that_is_sure_is_still_the_same():
    assert given(a_difference(1.015, 1.012, 1.03)) == "same"
    assert given(a_difference(1.015, 1.012, 1.018), margin=0.01) == "worse"


def test_a_large_chance_is_inconclusive_even_if_the_interval_is_apart():
    assert given(a_difference(p=0.06)) == "inconclusive"


def test_one_launch_tells_only_what_is_beyond_the_noise_between_jobs():
    assert given(a_difference(1.2, 1.15, 1.25, p=None, launches=(1, 1))) == "inconclusive"
    assert given(a_difference(1.5, 1.2, 1.8, p=None, launches=(1, 1))) == "inconclusive"
    assert given(a_difference(2.1, 1.9, 2.3, p=None, launches=(1, 1))) == "worse"
    assert given(a_difference(0.5, 0.45, 0.55, p=None, launches=(1, 1))) == "better"


def test_what_is_wholly_beyond_that_needs_no_chance_however_many_comparisons_there_are():
    assert given(a_difference(11.3, 4.13, 30.5, p=0.11, launches=(4, 4))) == "worse"
    assert given(a_difference(11.3, 1.2, 30.5, p=0.11, launches=(4, 4))) == "inconclusive"


def test_counted_bytes_and_what_never_varies_need_no_interval():
    counted = Difference(ratio=1.001, launches=(1, 1))
    assert given(counted, name="traffic_bytes_per_step", unit="bytes") == "worse"
    assert given(counted, name="peak_memory_bytes", unit="bytes") == "inconclusive"
    assert given(Difference(ratio=2.0, launches=(1, 1)), name="peak_memory_bytes", unit="bytes") == "worse"
    constant = Difference(ratio=1.001, low=1.001, high=1.001, constant=True, launches=(2, 2))
    assert given(constant, name="final_loss", unit="nats") == "worse"


def test_round_off_is_no_change_of_the_loss():
    assert given(Difference(ratio=1 + 1e-6, launches=(1, 1)), name="final_loss", unit="nats") == "same"
    assert given(Difference(ratio=1.0, equal=True, launches=(1, 1))) == "same"


def test_without_a_ratio_the_chance_decides():
    nothing = Difference(ratio=None, p=0.02, launches=(4, 4))
    assert given(nothing, change=1.0) == "worse"
    assert given(Difference(ratio=None, p=None, launches=(1, 1)), change=1.0) == "inconclusive"


def test_a_machine_that_got_slower_half_way_has_drifted():
    def a_launch(*halves):
        return [(x * (1 + 0.01 * k), 1.0) for x in halves for k in range(5)]

    assert drifted(Sample(launches=[a_launch(1.0, 1.5)]))
    assert drifted(Sample(launches=[a_launch(1.5, 1.0)]))
    assert not drifted(Sample(launches=[a_launch(1.0, 1.02)]))
    assert not drifted(Sample(launches=[a_launch(1.0, 1.5), a_launch(1, 1), a_launch(1, 1)]))
    assert not drifted(Sample(launches=[[(1.0, 1.0)]]))
