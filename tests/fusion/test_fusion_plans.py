"""Plans hold every element once, in an order that all ranks know by one hash; rules fill groups as their papers say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fusion_cases import TEXTS, Profile, members, plan_of, profiles, quick, rule
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

from parbench.errors import UsageError
from parbench.fusion import Gradient, Group, Piece, Plan, cut_plan
from parbench.fusion_check import checked_gradients, checked_plan, plan_hash, planned

MB = 1024 * 1024


def of_megabytes(*sizes: float, element_bytes: int = 4) -> list[Gradient]:
    counts = [int(size * MB) // element_bytes for size in sizes]
    return [Gradient(name=f"p{i}", elements=n, bytes=n * element_bytes) for i, n in enumerate(counts)]


def groups(text: str, gradients: list[Gradient], element_bytes: int = 4) -> list[list[int]]:
    return members(planned(rule(text), gradients, None, element_bytes))


@pytest.mark.parametrize("text", TEXTS)
@quick
@given(profile=profiles())
def test_every_element_goes_once(text: str, profile: Profile) -> None:
    plan = plan_of(text, profile)
    found = [(one.gradient, k) for group in plan.groups for one in group.pieces for k in range(one.start, one.stop)]
    assert len(found) == len(set(found))
    assert set(found) == {(i, k) for i, size in enumerate(profile.sizes) for k in range(size)}
    assert sum(group.bytes(profile.gradients) for group in plan.groups) == 4 * sum(profile.sizes)
    if not text.startswith("slices"):
        assert [i for group in members(plan) for i in group] == list(range(len(profile.sizes)))
        assert {group.priority for group in plan.groups} == {0}


@pytest.mark.parametrize("text", TEXTS)
def test_no_gradient_and_one(text: str) -> None:
    link = Profile((), ()).link
    assert planned(rule(text), [], link, 4) == Plan(())
    one = [Gradient(name="p", elements=1, bytes=4)]
    assert planned(rule(text), one, link, 4) == cut_plan(one, ())


def test_bytes_of_pieces_add_up_where_they_do_not_divide() -> None:
    gradients = [Gradient(name="p", elements=3, bytes=7)]
    assert [Group((Piece(0, k, k + 1),)).bytes(gradients) for k in range(3)] == [2, 2, 3]
    assert Group((Piece(0, 0, 3),)).bytes(gradients) == 7


# ---- hashes


@quick
@given(profiles(6), profiles(6), st.sampled_from(TEXTS), st.sampled_from(TEXTS))
def test_hashes_are_equal_where_plans_are(one: Profile, two: Profile, first: str, second: str) -> None:
    plans = (plan_of(first, one), plan_of(second, two))
    what = [(plan, profile.sizes) for plan, profile in zip(plans, (one, two), strict=True)]
    hashes = [plan_hash(plan, profile.gradients) for plan, profile in zip(plans, (one, two), strict=True)]
    assert (hashes[0] == hashes[1]) == (what[0] == what[1])
    assert plan_hash(plan_of(first, one), one.gradients) == hashes[0]


def test_a_hash_is_the_same_in_every_process() -> None:
    gradients = [Gradient(name="a", elements=2, bytes=8), Gradient(name="b", elements=1, bytes=4, ready_s=0.5)]
    # printf '[[["a", 2], ["b", 1]], [[0, [[0, 0, 2]]], [0, [[1, 0, 1]]]]]' | sha256sum
    expected = "7f4451d37c3eaf458b0dc8bbc812cdd62187cf0f66a1612686bca6d59961141b"
    assert plan_hash(cut_plan(gradients, (1,)), gradients) == expected


def test_every_part_of_a_plan_counts_for_its_hash() -> None:
    gradients = [Gradient(name="a", elements=2, bytes=8), Gradient(name="b", elements=2, bytes=8)]
    a, b, a0, a1 = Piece(0, 0, 2), Piece(1, 0, 2), Piece(0, 0, 1), Piece(0, 1, 2)
    plans = [
        Plan((Group((a, b)),)),
        Plan((Group((b, a)),)),
        Plan((Group((a,)), Group((b,)))),
        Plan((Group((b,)), Group((a,)))),
        Plan((Group((a,), 1), Group((b,)))),
        Plan((Group((a,)), Group((b,), 1))),
        Plan((Group((a0, a1, b)),)),
    ]
    assert len({plan_hash(plan, gradients) for plan in plans}) == len(plans)
    swapped, renamed = gradients[::-1], [replace(gradients[0], name='a",1],["'), gradients[1]]
    later = [replace(one, ready_s=1.0, bytes=2) for one in gradients]
    hashes = [plan_hash(plans[0], one) for one in (gradients, later, swapped, renamed)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


# ---- sizes of groups


def test_buckets_worked_by_hand() -> None:
    """1 MB is reached by 0.4 + 0.7; then 25 MB by 10 + 10 + 6, by 30 alone, and 5 + 19 are left."""
    sizes = (0.4, 0.7, 10, 10, 6, 30, 5, 19)
    assert groups("buckets", of_megabytes(*sizes)) == [[0, 1], [2, 3, 4], [5], [6, 7]]
    assert groups("buckets(first_mb=25)", of_megabytes(*sizes)) == [[0, 1, 2, 3, 4], [5], [6, 7]]
    assert groups("buckets(mb=0.5)", of_megabytes(*sizes)) == [[0, 1], *([k] for k in range(2, 8))]
    assert groups("buckets(mb=0.5)", of_megabytes(0.4, 0.3, 0.4)) == [[0, 1], [2]]
    assert groups("buckets(mb=1000, first_mb=1000)", of_megabytes(*sizes)) == [list(range(8))]


def test_a_bucket_that_is_full_to_the_byte_ends() -> None:
    assert groups("buckets(mb=2)", of_megabytes(1, 1, 1, 2)) == [[0], [1, 2], [3]]


@quick
@given(st.lists(st.integers(1, 900), min_size=1, max_size=30), st.integers(1, 4000), st.integers(1, 4000))
def test_buckets_are_those_of_torch(sizes: list[int], cap: int, first: int) -> None:
    tensors = [torch.empty(size) for size in sizes]
    gradients = [Gradient(name=str(i), elements=size, bytes=4 * size) for i, size in enumerate(sizes)]
    first = min(first, cap)
    expected, _ = distributed._compute_bucket_assignment_by_size(tensors, [first, cap])
    assert groups(f"buckets(mb={cap / MB!r}, first_mb={first / MB!r})", gradients) == expected


def test_the_default_first_bucket_is_that_of_torch() -> None:
    """torch has it in bytes; a first gradient of that size fills it, one of an element less does not."""
    elements = distributed._DEFAULT_FIRST_BUCKET_BYTES // 4
    for count, expected in ((elements, [[0], [1]]), (elements - 1, [[0, 1]])):
        assert groups(
            "buckets", [Gradient(name=str(i), elements=n, bytes=4 * n) for i, n in enumerate((count, 1))]
        ) == (expected)


def test_lazy_sends_when_the_threshold_is_reached_and_the_rest_at_the_end() -> None:
    sizes = (1, 2, 1, 4, 5, 3.5)
    assert groups("lazy(threshold_mb=4)", of_megabytes(*sizes)) == [[0, 1, 2], [3], [4], [5]]
    assert groups("lazy(threshold_mb=4.1)", of_megabytes(*sizes)) == [[0, 1, 2, 3], [4], [5]]
    assert groups("lazy(threshold_mb=1)", of_megabytes(*sizes)) == [[k] for k in range(6)]
    assert groups("lazy(threshold_mb=16.5)", of_megabytes(*sizes)) == [list(range(6))]


@quick
@given(profiles(30), st.integers(1, 500))
def test_lazy_groups_are_as_small_as_reaches_the_threshold(profile: Profile, threshold: int) -> None:
    found = members(plan_of(f"lazy(threshold_mb={threshold / MB!r})", profile))
    for group in found[:-1]:
        assert sum(4 * profile.sizes[i] for i in group[:-1]) < threshold <= sum(4 * profile.sizes[i] for i in group)
    assert sum(4 * profile.sizes[i] for i in found[-1][:-1]) < threshold
    assert found == members(plan_of(f"buckets(mb={threshold / MB!r}, first_mb={threshold / MB!r})", profile))


def test_memory_decides_and_not_what_is_compressed() -> None:
    gradients = of_megabytes(2, 2, 2, 2)
    compressed = [replace(one, bytes=one.bytes // 100) for one in gradients]
    assert groups("lazy(threshold_mb=4)", compressed) == groups("lazy(threshold_mb=4)", gradients) == [[0, 1], [2, 3]]
    assert groups("lazy(threshold_mb=4)", gradients, element_bytes=2) == [[0, 1, 2, 3]]


def test_slices_are_cut_and_the_first_layer_goes_first() -> None:
    """Gradient 2 is ready last, so its layer is used first; 10 = 4 + 4 + 2 elements."""
    gradients = [Gradient(name=str(i), elements=n, bytes=4 * n) for i, n in enumerate((10, 3, 4))]
    plan = planned(rule("slices(elements=4)"), gradients, None, 4)
    assert plan == Plan(
        (
            Group((Piece(0, 0, 4),), 2),
            Group((Piece(0, 4, 8),), 2),
            Group((Piece(0, 8, 10),), 2),
            Group((Piece(1, 0, 3),), 1),
            Group((Piece(2, 0, 4),), 0),
        )
    )


def test_too_many_slices_are_refused_with_a_size_that_is_not() -> None:
    gradients = [Gradient(name=str(i), elements=n, bytes=4 * n) for i, n in enumerate((25_000_000, 7, 1234))]
    with pytest.raises(UsageError, match=r"into 25001241 slices, 100000 are the most; slices\(elements=251\)"):
        planned(rule("slices(elements=1)"), gradients, None, 4)
    assert len(rule("slices(elements=251)").plan(gradients, None, 4).groups) <= 100_000
    whole, one_more = ([Gradient(name="p", elements=n, bytes=4 * n)] for n in (100_000, 100_001))
    assert len(rule("slices(elements=1)").plan(whole, None, 4).groups) == 100_000
    with pytest.raises(UsageError, match=r"100001 slices, .*slices\(elements=2\) are few enough"):
        rule("slices(elements=1)").plan(one_more, None, 4)


# ---- what is refused

TWO = [Gradient(name="a", elements=4, bytes=16), Gradient(name="b", elements=2, bytes=8)]
A, B = Piece(0, 0, 4), Piece(1, 0, 2)


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        (Plan((Group((A,)),)), "element 0 of 'b' is left out"),
        (Plan((Group((A, B)), Group((B,)))), "element 0 of 'b' goes twice"),
        (Plan((Group((Piece(0, 0, 3), B)),)), "element 3 of 'a' is left out"),
        (Plan((Group((Piece(0, 0, 1), Piece(0, 2, 4), B)),)), "element 1 of 'a' is left out"),
        (Plan((Group((Piece(0, 0, 3), Piece(0, 2, 4), B)),)), "element 2 of 'a' goes twice"),
        (Plan((Group((A, B)), Group(()))), "group 1 is empty"),
        (Plan((Group((A, B, Piece(2, 0, 1))),)), "gradient 2, where 0 to 1 are"),
        (Plan((Group((A, Piece(-1, 0, 2))),)), "gradient -1, where 0 to 1 are"),
        (Plan((Group((A, Piece(1, 0, 3))),)), "elements 0 to 3 of 'b', which has 0 to 2"),
        (Plan((Group((A, B, Piece(1, 1, 1))),)), "elements 1 to 1 of 'b'"),
        (Plan((Group((A, Piece(1, -1, 2))),)), "elements -1 to 2 of 'b'"),
        (Plan((Group((B,)), Group((A,)))), "group 1 is ready with 'a' and must wait for 'b'"),
        (Plan((Group((B,), 3), Group((A,), 3))), "of the same priority"),
    ],
)
def test_a_plan_that_is_wrong_says_where(plan: Plan, part: str) -> None:
    with pytest.raises(UsageError, match="fusion rule mine is broken") as caught:
        checked_plan(plan, TWO, "mine")
    assert part in str(caught.value)


def test_priorities_may_reorder() -> None:
    plan = Plan((Group((B,), 0), Group((A,), 1)))
    assert checked_plan(plan, TWO, "mine") is plan


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"name": "a"}, "two gradients have one name"),
        ({"elements": 0}, "'b' has 0 elements and 8 bytes"),
        ({"bytes": 0}, "leave it out"),
        ({"ready_s": float("nan")}, "ready at nan s"),
        ({"ready_s": float("inf")}, "ready at inf s"),
        ({"ready_s": -1.0}, "ready at -1.0 s"),
        ({"ready_s": 0.5}, "in the order in which they are ready"),
    ],
)
def test_gradients_that_are_none_are_refused(changes: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked_gradients([replace(TWO[0], ready_s=1.0), replace(TWO[1], **{"ready_s": 1.0} | changes)])
    assert part in str(caught.value)


def test_an_element_has_bytes() -> None:
    with pytest.raises(UsageError, match="at least 1 byte, given 0"):
        planned(rule("merged"), TWO, None, 0)
