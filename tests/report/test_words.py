"""Tests of numbers and names in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parbench.record import Metric
from parbench.report.words import amount, duration, number, several, small, visible, with_interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (12345.0, "12345"),
        (0.0012345, "0.00123"),
        (1.2345e-9, "1.23e-09"),
        (1e12, "1.00e+12"),
        (-2.5, "-2.50"),
        (math.inf, "inf"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00123, "s", "1.23 ms"),
        (1.5e-6, "s", "1.50 µs"),
        (2.0, "s", "2.00 s"),
        (0.0, "s", "0 µs"),
        (123456.0, "tokens/s", "123 k tokens/s"),
        (5.0, "samples/s", "5.00 samples/s"),
        (2.0**31, "bytes", "2.00 GiB"),
        (1.25, "nats", "1.25 nats"),
    ],
)
def test_amount_has_the_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert amount(Metric(value=value, unit=unit, better=None)) == text


def test_interval_shares_the_unit() -> None:
    metric = Metric(value=0.00123, unit="s", better="lower", ci_low=0.0012, ci_high=0.00131)
    assert with_interval(metric) == "1.23 [1.20, 1.31] ms"


def test_small_duration_and_lists() -> None:
    assert [small(x) for x in (3.1e-7, 0.0, 0.5)] == ["3e-7", "0", "5e-1"]
    assert [duration(x) for x in (0.5, 80.0, 3700.0)] == ["500 ms", "1 min 20 s", "1 h 1 min"]
    assert [several(x) for x in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["", "a", "a and b", "a, b and c"]


@given(st.text(max_size=300), st.integers(min_value=10, max_value=100))
def test_visible_text_is_printable_and_short(text: str, longest: int) -> None:
    found = visible(text, longest)
    assert found.isprintable()
    assert len(found) <= longest


@given(st.text(alphabet=st.characters(categories=("L", "N")), max_size=100))
def test_visible_keeps_plain_text(text: str) -> None:
    assert visible(text) == text
