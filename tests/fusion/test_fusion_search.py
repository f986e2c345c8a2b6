"""The search finds the best cut where times fall and rise once, never runs for ever, and keeps the best that it saw."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from fusion_cases import TEXTS, Profile, members, plan_of, profiles, quick, rule
from hypothesis import given
from hypothesis import strategies as st

from parbench.fusion import Gradient, Plan
from parbench.fusion_check import checked_plan, plan_hash

Cuts = tuple[int, ...]


def gradients(number: int) -> list[Gradient]:
    return [Gradient(name=str(i), elements=1, bytes=4) for i in range(number)]


def cuts_of(plan: Plan) -> Cuts:
    return tuple(group[0] for group in members(plan)[1:])


def driven(text: str, number: int, seconds: Callable[[Cuts], float]) -> tuple[Cuts, list[Cuts]]:
    """Return the cuts that a search ends with, and those of every step."""
    search = rule(text).search(gradients(number), None, 4)
    tried: list[Cuts] = []
    try:
        plan = next(search)
        while True:
            tried.append(cuts_of(checked_plan(plan, gradients(number), "searched")))
            plan = search.send(seconds(tried[-1]))
    except StopIteration as end:
        return cuts_of(end.value), tried


@pytest.mark.parametrize(
    ("number", "exhaustive"), [(2, "False"), (3, "False"), (10, "False"), (161, "False"), (2, "True"), (30, "True")]
)
def test_it_finds_the_one_lowest_place(number: int, exhaustive: str) -> None:
    for best in range(1, number, 1 + number // 20):
        text = f"searched(probes=1, warmup=0, exhaustive={exhaustive})"
        found, tried = driven(text, number, lambda cuts, best=best: 100 + abs(cuts[0] - best) if cuts else 1000)
        assert found == (best,)
        assert len(tried) == len(set(tried))
        assert len(tried) <= (number if exhaustive == "True" else 1 + 2 * number.bit_length())


@quick
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6), st.booleans())
def test_whatever_times_are_it_keeps_the_best_that_it_saw(number: int, groups: int, seed: int, every: bool) -> None:
    def seconds(cuts: Cuts) -> float:
        return random.Random(f"{seed} {cuts}").randint(1, 1000)

    found, tried = driven(f"searched(groups={groups}, gain=0, exhaustive={every})", number, seconds)
    assert found == min(tried, key=lambda cuts: (seconds(cuts), len(cuts), cuts))
    assert tried[0] == ()
    assert all(tried.count(cuts) == 6 for cuts in tried)  # 5 probes and 1 of warm-up, never a second time
    assert max(map(len, tried)) < groups


def test_exhaustive_tries_all() -> None:
    """By hand: of 5 gradients, 1 plan of one group, 4 of two, 6 of three."""
    _, tried = driven(
        "searched(groups=3, probes=1, warmup=0, exhaustive=True)", 5, lambda cuts: 100.0 / (1 + len(cuts))
    )
    assert len(tried) == 1 + 4 + 6


def test_three_groups_are_found_where_each_cut_has_a_lowest_place() -> None:
    def seconds(cuts: Cuts) -> float:
        return {0: 1000.0, 1: 500.0}.get(len(cuts), 100.0 + sum(abs(a - b) for a, b in zip(cuts, (3, 7), strict=False)))

    assert driven("searched(groups=3, probes=1, warmup=0)", 12, seconds)[0] == (3, 7)


def test_a_further_group_must_save_enough() -> None:
    def seconds(cuts: Cuts) -> float:
        return (100.0, 90.0, 80.0)[len(cuts)]

    for gain, groups in ((0.2, 2), (0.11, 2), (0.1, 3), (0.05, 3)):
        found, tried = driven(f"searched(groups=3, gain={gain})", 6, seconds)
        assert max(map(len, tried)) == groups - 1
        assert len(found) == groups - 1  # what was tried and is better is kept, even where it does not pay to go on


def test_what_a_group_saves_is_counted_from_the_one_before() -> None:
    """By hand: the third saves 1 of 80, less than 0.1, though 21 of 100 from the first."""
    found, tried = driven("searched(groups=4, gain=0.1)", 6, lambda cuts: (100.0, 80.0, 79.0, 1.0)[len(cuts)])
    assert (len(found), max(map(len, tried))) == (2, 2)


def test_the_median_counts_and_warm_up_does_not() -> None:
    times = iter([99.0, 1.0, 2.0, 50.0] * 99)
    found, tried = driven("searched(probes=3, warmup=1)", 2, lambda cuts: next(times) - (0.5 if cuts else 0))
    assert found == (1,)
    assert tried == [()] * 4 + [(1,)] * 4
    times = iter([0.0, 9.0, 9.0, 8.0])
    assert driven("searched(probes=1, warmup=1)", 2, lambda cuts: next(times))[0] == (1,)  # 8 is less than 9


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_times_that_are_none_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        driven("searched", 3, lambda cuts: seconds)


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith(("searched", "bayesian"))])
def test_a_rule_that_does_not_probe_returns_its_plan_at_once(text: str) -> None:
    profile = Profile((0, 3, 4), (5, 6, 7), 2, 1)
    assert not rule(text).probes
    with pytest.raises(StopIteration) as end:
        next(rule(text).search(profile.gradients, profile.link, 4))
    assert end.value.value == plan_of(text, profile)


@quick
@given(profiles(), st.integers(1, 8))
def test_without_a_search_groups_have_as_many_gradients_each(profile: Profile, groups: int) -> None:
    sizes = [len(group) for group in members(plan_of(f"searched(groups={groups})", profile))]
    assert len(sizes) == min(groups, len(profile.sizes))
    assert max(sizes) - min(sizes) <= 1


def test_ranks_that_are_told_the_same_try_the_same() -> None:
    """Two searches side by side, as on two ranks, hold equal hashes in every step."""
    source = random.Random(3)
    ones, others = (rule("searched(groups=3, gain=0)").search(gradients(9), None, 4) for _ in range(2))
    plans = next(ones), next(others)
    for _ in range(100):
        assert plan_hash(plans[0], gradients(9)) == plan_hash(plans[1], gradients(9))
        seconds = source.random()
        plans = ones.send(seconds), others.send(seconds)


def test_the_bayesian_search_finds_the_size_that_is_fastest() -> None:
    """Step times have one minimum, at groups of about 8 of the 40 equal gradients; a trial's first step is slow."""
    gradients = [Gradient(name=str(k), elements=2**18, bytes=2**20) for k in range(40)]
    one = rule("bayesian(trials=12, probes=3, warmup=1)")
    search, tried = one.search(gradients, None, 4), []
    plan = next(search)
    for step in range(12 * 4 - 1):
        tried.append(max(len(group.pieces) for group in plan.groups))
        plan = search.send(9.0 if step % 4 == 0 else 1 + abs(math.log(tried[-1] / 8)))
    tried.append(max(len(group.pieces) for group in plan.groups))
    with pytest.raises(StopIteration) as end:
        search.send(1 + abs(math.log(tried[-1] / 8)))
    assert tried[0] == 25  # megabytes, of one each
    best = max(len(group.pieces) for group in end.value.value.groups)
    assert best == min(tried, key=lambda size: abs(math.log(size / 8)))
    assert 6 <= best <= 11


def test_the_bayesian_search_of_a_small_model_tries_sizes_that_differ() -> None:
    """Of a few kilobytes, a thousandth of a megabyte is a large part."""
    gradients = [Gradient(name=str(k), elements=64, bytes=256) for k in range(12)]
    search, tried = rule("bayesian(trials=8, probes=1, warmup=0)").search(gradients, None, 4), set()
    plan = next(search)
    for _ in range(7):
        tried.add(len(plan.groups))
        plan = search.send(1.0 + 0.1 * len(plan.groups))
    assert len(tried) > 2
