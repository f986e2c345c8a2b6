"""Drift, two speeds and a slow rank, in series made by hand; noise alone is none of them."""

import random

import pytest

from parbench.record import Round
from parbench.steadiness import steadiness

NOISE = random.Random(1)


def rounds(seconds, steps=5, ranks=None):
    """A round per value, which is the seconds of a step."""
    found = []
    for k, s in enumerate(seconds):
        walls = ranks(k, s) if ranks else (s * steps, s * steps)
        found.append(
            Round(
                index=k,
                first_step=k * steps,
                steps=steps,
                samples=steps,
                wall_s=max(walls),
                drain_s=0,
                rank_wall_s=walls,
            )
        )
    return found


def told(taken, steps=None, *, period=1, alike=True):
    steps = steps if steps is not None else [[r.wall_s / r.steps for r in taken for _ in range(r.steps)]]
    return {one.code: one for one in steadiness(taken, steps, period=period, alike=alike)}


def noisy(count, scale=0.05, middle=0.1):
    return [middle * NOISE.lognormvariate(0, scale) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 8, 20, 100])
def test_noise_is_nothing_to_speak_of(count):
    for _ in range(20):
        assert not told(rounds(noisy(count, 0.02)))


def test_a_second_half_that_is_slower_is_drift():
    found = told(rounds([*noisy(10), *noisy(10, middle=0.13)]))["drift"]
    assert "slower" in found.message
    assert "heat" in found.advice
    assert "faster" in told(rounds([*noisy(4, 0.01, 0.2), *noisy(4, 0.01)]))["drift"].message


@pytest.mark.parametrize(
    "seconds",
    [
        [*[0.1] * 10, *[0.105] * 10],  # too little
        [0.1, 0.1, 0.1, 0.15, 0.15, 0.15],  # too few
        [0.1, 0.14] * 10,  # it comes and goes
    ],
)
def test_a_small_difference_few_rounds_or_a_wobble_are_no_drift(seconds):
    assert "drift" not in told(rounds(seconds))


def test_steps_of_two_speeds_are_told_with_both():
    steps = [0.1 if k % 3 else 0.2 for k in range(60)]
    found = told(rounds([0.133] * 12), [steps])["two_speeds"]
    assert "40 took about 0.1 s, 20 about 0.2 s" in found.message


@pytest.mark.parametrize(
    "steps",
    [
        [0.1] * 60,
        [0.1 + 0.001 * k for k in range(60)],  # a slope
        [*[0.1] * 55, *[0.3] * 5],  # outliers, such as an epoch's last batch
        [0.1, 0.11] * 30,  # apart by a tenth only
        [0.1, 0.2] * 5,  # too few
    ],
)
def test_a_slope_outliers_and_small_differences_are_one_speed(steps):
    assert "two_speeds" not in told(rounds([0.1] * (len(steps) // 5)), [steps])


def test_steps_that_differ_by_design_are_judged_by_rounds():
    """Local SGD: every fourth step exchanges. A round holds whole periods."""
    steps = [0.3 if k % 4 == 3 else 0.1 for k in range(80)]
    assert "two_speeds" in told(rounds([0.15] * 16), [steps])
    assert "two_speeds" not in told(rounds([0.15] * 20, steps=4), [steps], period=4)


def test_the_rank_that_always_ends_last_is_slow():
    """Half a step later than the others, in rounds of five."""
    found = told(rounds([0.1] * 8, ranks=lambda k, s: (5 * s, 5 * s, 5.5 * s)))["slow_rank"]
    assert found.message.startswith("rank 2 ended 8 of 8 rounds last")
    assert "45%" in found.message  # of a step of 0.11 s


@pytest.mark.parametrize(
    ("ranks", "alike"),
    [
        (lambda k, s: (5 * s, 5.5 * s) if k % 2 else (5.5 * s, 5 * s), True),  # by turns
        (lambda k, s: (5 * s, 5.01 * s), True),  # by a hundredth of a step
        (lambda k, s: (5 * s, 5.5 * s), False),  # a pipeline's first stage ends last
        (lambda k, s: (5 * s,), True),
    ],
)
def test_who_is_last_by_chance_by_little_or_by_design_is_not_slow(ranks, alike):
    assert "slow_rank" not in told(rounds([0.1] * 8, ranks=ranks), alike=alike)


def test_many_steps_are_judged_in_no_time():
    steps = noisy(20_000)
    assert not told(rounds(noisy(4000)), [steps])
