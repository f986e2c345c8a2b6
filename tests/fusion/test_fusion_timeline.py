"""The timeline is the published recursion, and with priorities what a clock that ticks finds."""

from __future__ import annotations

from fractions import Fraction

from fusion_cases import Profile, members, plan_of, profiles, quick, recursion
from hypothesis import given
from hypothesis import strategies as st

from parbench.fusion import Group, Piece, Plan
from parbench.fusion_timeline import finish, timeline


@quick
@given(profiles(20), st.sampled_from(("per_tensor", "merged", "mgwfbp", "optimal", "lazy(threshold_mb=0.0001)")))
def test_it_is_the_published_recursion(profile: Profile, text: str) -> None:
    plan = plan_of(text, profile)
    assert finish(plan, profile.gradients, profile.link) == recursion(members(plan), profile, profile.time)
    exchanges = timeline(plan, profile.gradients, profile.link)
    assert [one.group for one in exchanges] == list(range(len(plan.groups)))


def test_no_exchange_ends_at_once() -> None:
    assert finish(Plan(()), [], Profile((), ()).link) == 0


def ticking(plan: Plan, profile: Profile) -> list[tuple[int, int, int]]:
    """Group, start and end, found by looking at the channel in every unit of time."""
    left = list(range(len(plan.groups)))
    done: list[tuple[int, int, int]] = []
    now = 0
    while left:
        heads = {}
        for number in reversed(left):
            heads[plan.groups[number].priority] = number
        ready = [
            (priority, number)
            for priority, number in heads.items()
            if all(profile.ready[piece.gradient] <= now for piece in plan.groups[number].pieces)
        ]
        if not ready:
            now += 1
            continue
        number = min(ready)[1]
        sent = sum(
            Fraction(4 * (one.stop - one.start)) for one in plan.groups[number].pieces
        )  # gradients have 4 bytes an element
        end = now + int(profile.time(int(sent)))
        done.append((number, now, end))
        left.remove(number)
        now = end
    return done


@quick
@given(profiles(8), st.integers(1, 40))
def test_slices_go_by_priority(profile: Profile, elements: int) -> None:
    plan = plan_of(f"slices(elements={elements})", profile)
    found = [(one.group, one.start_s, one.end_s) for one in timeline(plan, profile.gradients, profile.link)]
    assert found == ticking(plan, profile)


@quick
@given(profiles(8), st.data())
def test_any_priorities(profile: Profile, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(profile.sizes))))
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=len(order), max_size=len(order)))
    groups = [Group((Piece(i, 0, profile.sizes[i]),), number) for i, number in zip(order, numbers, strict=True)]
    plan = Plan(tuple(groups))
    found = [(one.group, one.start_s, one.end_s) for one in timeline(plan, profile.gradients, profile.link)]
    assert found == ticking(plan, profile)


def test_the_first_layer_overtakes_between_slices() -> None:
    """By hand: a late layer of 8 elements in slices of 2, 4 bytes each, 8 a slice; the first layer's is ready at 10."""
    profile = Profile((0, 10), (8, 1), beta=1)
    plan = plan_of("slices(elements=2)", profile)
    exchanges = timeline(plan, profile.gradients, profile.link)
    assert [(one.group, one.start_s) for one in exchanges] == [(0, 0), (1, 8), (4, 16), (2, 20), (3, 28)]
    whole = timeline(plan_of("per_tensor", profile), profile.gradients, profile.link)
    assert [(one.group, one.start_s) for one in whole] == [(0, 0), (1, 32)]
