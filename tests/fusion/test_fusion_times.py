"""Under the model of MG-WFBP: optimal is no slower than mgwfbp, which is no slower than per_tensor and merged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fusion_cases import Profile, members, partitions, plan_of, profiles, quick, random_profile, recursion, rule
from hypothesis import given
from hypothesis import strategies as st

from parbench.errors import UsageError
from parbench.fusion import AlphaBeta, Gradient, Link, Measured
from parbench.fusion_check import planned
from parbench.fusion_timeline import finish

RULES = ("optimal", "mgwfbp", "per_tensor", "merged")


def times(profile: Profile) -> list[float]:
    return [finish(plan_of(text, profile), profile.gradients, profile.link) for text in RULES]


def ordered(profile: Profile) -> float:
    """Check the order of the rules and return mgwfbp's time in times of the optimum's."""
    optimal, mgwfbp, per_tensor, merged = times(profile)
    assert optimal <= mgwfbp <= min(per_tensor, merged), profile
    assert mgwfbp == optimal or mgwfbp < 2 * optimal, profile
    return mgwfbp / optimal if optimal else 1.0


def many(number: int, seed: int, most: int) -> str:
    source = random.Random(seed)
    ratios = sorted(ordered(random_profile(source, most)) for _ in range(number))
    worse = [ratio for ratio in ratios if ratio > 1]
    mean = sum(ratios) / number
    return (
        f"{number} profiles of at most {most} gradients: mgwfbp is worse than optimal in {len(worse)}; "
        f"mean {mean:.4f}, 99 % below {ratios[int(0.99 * number)]:.4f}, worst {ratios[-1]:.4f} times the optimum"
    )


@quick
@given(profiles(40))
def test_the_rules_are_in_the_order_that_the_model_says(profile: Profile) -> None:
    ordered(profile)


def test_some_hundred_profiles() -> None:
    print(many(400, 1, 12))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "most"), [(20_000, 12), (3_000, 60)])
def test_twenty_thousand_profiles(number: int, most: int) -> None:
    print(many(number, most, most))


@quick
@given(profiles(10))
def test_optimal_is_the_best_of_all_partitions(profile: Profile) -> None:
    best = min(recursion(groups, profile, profile.time) for groups in partitions(len(profile.sizes)))
    assert times(profile)[0] == best


@quick
@given(profiles(9), st.data())
def test_optimal_is_the_best_on_a_measured_link_too(profile: Profile, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 2000), min_size=2, max_size=8, unique=True))
    seconds = data.draw(st.lists(st.integers(1, 500), min_size=len(sizes), max_size=len(sizes)))
    link = Measured(zip(sizes, seconds, strict=True))
    plan = plan_of("optimal", profile, link)
    found = [recursion(groups, profile, link.seconds) for groups in partitions(len(profile.sizes))]
    assert finish(plan, profile.gradients, link) == min(found) == recursion(members(plan), profile, link.seconds)


@quick
@given(profiles(12))
def test_mgwfbp_is_the_published_algorithm(profile: Profile) -> None:
    assert members(plan_of("mgwfbp", profile)) == published(profile)


def published(profile: Profile) -> list[list[int]]:
    """Algorithm 1 as printed: layers L to 1, times of all layers calculated again after every merge."""
    layers = len(profile.sizes)
    p = [0, *(4 * size for size in reversed(profile.sizes))]  # p[l] for l = 1 .. L; backward goes from L to 1
    ready = [0, *reversed(profile.ready)]
    t_c = [0, *(profile.time(size) for size in p[1:])]
    into_next = [False] * (layers + 1)

    def starts() -> list[float]:
        tau = [0.0] * (layers + 1)
        tau[layers] = ready[layers]
        for layer in range(layers - 1, 0, -1):
            tau[layer] = max(tau[layer + 1] + t_c[layer + 1], ready[layer])
        return tau

    tau_c = starts()
    for layer in range(layers, 1, -1):
        if ready[layer - 1] < tau_c[layer] + profile.alpha:
            into_next[layer] = True
            t_c[layer], p[layer - 1] = 0, p[layer - 1] + p[layer]
            t_c[layer - 1] = profile.time(p[layer - 1])
            tau_c = starts()
    groups: list[list[int]] = [[]]
    for layer in range(layers, 0, -1):
        groups[-1].append(layers - layer)
        if layer > 1 and not into_next[layer]:
            groups.append([])
    assert tau_c[1] + t_c[1] == recursion(groups, profile, profile.time)
    return groups


def test_waiting_in_a_chain_comes_near_to_twice_the_optimum() -> None:
    """The first gradient has nearly all bytes, and each next is ready just before alpha has passed once more."""
    alpha, number = 10_000, 1000
    ready = tuple((alpha - 1) * i for i in range(number))
    chain = Profile(ready, (alpha * number // 4, *(1 for _ in ready[1:])), alpha, 1)
    assert members(plan_of("mgwfbp", chain)) == [list(range(number))]
    assert 1.995 < ordered(chain) < 2


def test_a_longer_startup_can_make_mgwfbp_faster() -> None:
    """By hand: with 5 instead of 4 it waits for gradient 1, whose 6 would else begin after 6 and hold up the rest."""
    four, five = (Profile((0, 4, 9, 14), (2, 6, 2, 2), alpha, 0.25) for alpha in (4, 5))
    assert [members(plan_of("mgwfbp", one)) for one in (four, five)] == [[[0], [1, 2], [3]], [[0, 1], [2, 3]]]
    assert [times(one)[1] for one in (four, five)] == [27, 26]


@quick
@given(profiles(20), st.integers(0, 50), st.integers(0, 5))
def test_a_slower_link_makes_no_optimum_faster(profile: Profile, alpha: int, beta: int) -> None:
    slower = replace(profile, alpha=profile.alpha + alpha, beta=profile.beta + beta)
    assert all(times(slower)[k] >= times(profile)[k] for k in (0, 2, 3))


@quick
@given(profiles(20))
def test_what_costs_nothing_or_comes_at_once(profile: Profile) -> None:
    assert set(times(replace(profile, alpha=0, beta=0))) == {profile.ready[-1]}
    at_once = replace(profile, ready=tuple(0 for _ in profile.ready))
    optimal, mgwfbp, _, merged = times(at_once)
    assert optimal == mgwfbp == merged == profile.time(4 * sum(profile.sizes))
    without_startup = replace(profile, alpha=0)
    assert times(without_startup)[0] == times(without_startup)[1] == times(without_startup)[2]


class Through(Link):
    """Straight lines between points; its alpha is what an empty message takes, not that of a fit."""

    def __init__(self, points: Sequence[tuple[int, int]]) -> None:
        self.lines = Measured(points)

    def seconds(self, message_bytes: int) -> float:
        return self.lines.seconds(message_bytes)

    def fitted(self) -> AlphaBeta:
        return AlphaBeta(self.seconds(0), 0)


SLOPES = {
    "concave": ((0, 10), (100, 300), (4000, 4200)),  # what is saved by merging: at least T(0) = 10
    "convex": ((0, 10), (100, 110), (4000, 12_000)),  # at most T(0)
}


@pytest.mark.parametrize(("kind", "bounds"), [("concave", "per_tensor"), ("convex", "merged")])
@quick
@given(profile=profiles(20))
def test_on_a_bent_link_mgwfbp_keeps_one_of_its_bounds(profile: Profile, kind: str, bounds: str) -> None:
    link = Through(SLOPES[kind])
    gradients = profile.gradients
    assert finish(plan_of("mgwfbp", profile, link), gradients, link) <= finish(
        plan_of(bounds, profile, link), gradients, link
    )


@pytest.mark.parametrize(
    ("kind", "broken", "ready", "sizes"),
    [
        # Two groups of 25 elements: the second waits for the first, and one message would have saved 200.
        ("concave", "merged", (0, 10), (25, 25)),
        # Together 8000 bytes take twice 4000 and more.
        ("convex", "per_tensor", (0, 9), (1000, 1000)),
    ],
)
def test_on_a_bent_link_mgwfbp_can_break_the_other(
    kind: str, broken: str, ready: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    profile, link = Profile(ready, sizes), Through(SLOPES[kind])
    slower, other = (finish(plan_of(text, profile, link), profile.gradients, link) for text in ("mgwfbp", broken))
    assert slower > other


def test_mgwfbp_does_not_leave_the_link_idle_for_a_startup_that_is_none() -> None:
    """By hand: the line through the points is 8.83 + 0.0255 m, but 4 bytes take 1.196 and are gone."""
    link = Measured([(0, 1), (1000, 50), (2000, 52)])
    assert link.fitted().alpha_s == pytest.approx(53 / 6)
    assert members(plan_of("mgwfbp", Profile((0, 2, 3), (1, 1, 1)), link)) == [[0], [1, 2]]


class Counting(Link):
    def __init__(self) -> None:
        self.calls = 0

    def seconds(self, message_bytes: int) -> float:
        self.calls += 1
        return 1e-4 + 1e-9 * message_bytes

    def fitted(self) -> AlphaBeta:
        return AlphaBeta(1e-4, 1e-9)


def test_a_thousand_gradients_are_not_compared_all_with_all() -> None:
    source = random.Random(0)
    sizes = [source.randint(1, 10**6) for _ in range(1000)]
    gradients = [Gradient(name=str(i), elements=size, bytes=4 * size, ready_s=i * 4e-3) for i, size in enumerate(sizes)]
    link = Counting()
    assert len(planned(rule("optimal"), gradients, link, 4).groups) > 1
    assert link.calls < 50_000  # of 500,500 pairs


@pytest.mark.parametrize("text", ["mgwfbp", "optimal"])
def test_a_rule_that_needs_a_link_says_so(text: str) -> None:
    profile = Profile((0, 1), (1, 1))
    with pytest.raises(UsageError, match=f"fusion rule {text} needs to know how long exchanges take"):
        planned(rule(text), profile.gradients, None, 4)
