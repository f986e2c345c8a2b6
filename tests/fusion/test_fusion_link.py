"""A link's durations are those of its line or its points, and never fall."""

from __future__ import annotations

import math

import pytest
from fusion_cases import quick
from hypothesis import given
from hypothesis import strategies as st

from parbench.fusion import AlphaBeta, Measured

POINTS = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats(1e-7, 100)), min_size=2, max_size=20, unique_by=lambda point: point[0]
)


def test_a_line() -> None:
    assert AlphaBeta(0.5, 0.25).seconds(8) == 2.5
    assert AlphaBeta(0.5, 0.25).fitted() == AlphaBeta(0.5, 0.25)
    assert AlphaBeta(0.0, 0.0).seconds(10**12) == 0


@pytest.mark.parametrize("wrong", [-1e-9, math.nan, math.inf, -math.inf])
def test_numbers_of_no_line_are_refused(wrong: float) -> None:
    for numbers, what in (((wrong, 0.0), "alpha_s"), ((0.0, wrong), "beta_s_per_byte")):
        with pytest.raises(ValueError, match=f"{what} must be a finite number of at least 0"):
            AlphaBeta(*numbers)


def test_measured_points_are_joined_by_lines() -> None:
    link = Measured([(300, 7), (100, 3), (200, 4)])
    assert [link.seconds(size) for size in (0, 50, 100, 150, 200, 250, 300)] == [3, 3, 3, 3.5, 4, 5.5, 7]
    assert link.seconds(500) == 13  # the last line goes on: 3 per 100
    assert repr(link) == "Measured([(100, 3), (200, 4), (300, 7)])"


def test_rounding_does_not_lift_a_point() -> None:
    assert 0.3 + (0.9 - 0.3) > 0.9
    assert Measured([(0, 0.3), (8, 0.9), (9, 0.9)]).seconds(8) == 0.9


def test_points_that_fall_are_pooled() -> None:
    """By hand: 5 and 3 become 4; 8, 6 and 4 become 6; the mean of all stays."""
    link = Measured(zip(range(0, 60, 10), (5, 3, 8, 6, 4, 9), strict=True))
    assert [link.seconds(size) for size in range(0, 60, 10)] == [4, 4, 6, 6, 6, 9]
    assert [Measured(zip((1, 2, 3), (3, 2, 1), strict=True)).seconds(size) for size in (1, 2, 9)] == [2, 2, 2]


@quick
@given(POINTS, st.lists(st.integers(0, 2 * 10**9), min_size=2, max_size=30))
def test_a_larger_message_never_takes_less(points: list[tuple[int, float]], sizes: list[int]) -> None:
    link = Measured(points)
    near = [size + step for size, _ in points for step in (-1, 0, 1) if size + step >= 0]
    durations = [link.seconds(size) for size in sorted([*sizes, *near])]
    assert durations == sorted(durations)
    assert all(math.isfinite(one) and one > 0 for one in durations)


@quick
@given(st.floats(1e-6, 1), st.floats(1e-10, 1e-6))
def test_the_fit_of_a_line_is_that_line(alpha: float, beta: float) -> None:
    link = Measured([(size, alpha + beta * size) for size in (0, 1000, 5000, 10**6)])
    fit = link.fitted()
    assert fit.alpha_s == pytest.approx(alpha, rel=1e-6)
    assert fit.beta_s_per_byte == pytest.approx(beta, rel=1e-6, abs=1e-12)
    assert link.seconds(3000) == pytest.approx(alpha + beta * 3000)


def test_a_fit_has_no_negative_number() -> None:
    """By hand: sum xy / sum xx of (1, 1), (2, 5), (3, 9) is 38 / 14; the mean of 9, 5, 1 is 5."""
    steep = Measured([(1, 1), (2, 5), (3, 9)]).fitted()
    assert (steep.alpha_s, steep.beta_s_per_byte) == (0, pytest.approx(38 / 14))
    assert Measured([(1, 9), (2, 5), (3, 1)]).fitted() == AlphaBeta(5.0, 0.0)
    assert Measured([(0, 2), (4, 3), (8, 4)]).fitted() == AlphaBeta(2.0, 0.25)


@pytest.mark.parametrize(
    ("points", "part"),
    [
        ([], "at least 2 points, given 0"),
        ([(1, 1)], "at least 2 points, given 1"),
        ([(1, 1), (1, 2)], "each size once"),
        ([(1, 1), (2, 0)], r"seconds above 0, given \(2, 0\)"),
        ([(1, 1), (2, -1)], "seconds above 0"),
        ([(1, 1), (2, math.nan)], "seconds above 0"),
        ([(1, 1), (2, math.inf)], "seconds above 0"),
        ([(-1, 1), (2, 1)], "bytes of at least 0"),
        ([(math.inf, 1), (2, 1)], "bytes of at least 0"),
    ],
)
def test_points_of_no_measurement_are_refused(points: list[tuple[float, float]], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Measured(points)
