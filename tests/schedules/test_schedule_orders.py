"""Every schedule does everything once, in an order that ends, and keeps as many micro-batches as its paper says."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter

import pytest
import schedule_simulation as simulation
from hypothesis import given
from rich.text import Text
from schedule_cases import HALVED, LIVE, REGISTRY, TEXTS, Case, cases, family, quick

from parbench.report.schedule import schedule_picture
from parbench.report.schedule_facts import schedule_facts
from parbench.schedule import Costs


def microbatches(text: str, ranks: int, number: int) -> int:
    """A number of micro-batches that the schedule takes."""
    if text.startswith("interleaved"):
        return number * ranks
    return number + 2 * ranks - 1 if text == "dualpipev" else number


SMALL = [Case(text, p, microbatches(text, p, m)) for text in TEXTS for p in range(1, 6) for m in range(1, 9)]


@quick
@given(cases())
def test_every_action_is_done_exactly_once(case: Case) -> None:
    for actions in case.order:
        found = Counter(actions)
        expected = set()
        for chunk in range(case.chunks):
            for microbatch in range(case.microbatches):
                kinds = "FB" if ("B", microbatch, chunk) in found else "FIW"
                expected |= {(kind, microbatch, chunk) for kind in kinds}
        assert set(found) == expected
        assert set(found.values()) == {1}


@quick
@given(cases())
def test_what_an_action_needs_was_done_before_it(case: Case) -> None:
    lines = simulation.by_events(case, lambda kind: {"F": 2, "B": 3, "I": 1, "W": 2}[kind])
    last = case.ranks * case.chunks - 1
    begin = {(one[0], case.stage(r, one[2]), one[1]): start for r, line in enumerate(lines) for one, start, _ in line}
    end = {(one[0], case.stage(r, one[2]), one[1]): stop for r, line in enumerate(lines) for one, _, stop in line}
    gradient = {(stage, k): stop for (kind, stage, k), stop in end.items() if kind in "BI"}
    for (kind, stage, k), start in begin.items():
        if kind == "F" and stage > 0:
            assert start >= end["F", stage - 1, k]
        if kind in "BI":
            assert start >= end["F", stage, k]
        if kind in "BI" and stage < last:
            assert start >= gradient[stage + 1, k]
        if kind == "W":
            assert start >= end["I", stage, k]


@quick
@given(cases())
def test_it_ends_with_one_queue_per_directed_pair_of_ranks(case: Case) -> None:
    simulation.by_queues(case)


@quick
@given(cases())
def test_the_contract_sends_what_the_placement_demands(case: Case) -> None:
    for source in range(case.ranks):
        for target in set(range(case.ranks)) - {source}:
            sent = case.schedule.sent(source, target, case.ranks, case.microbatches)
            plain = [("g" if one.gradient else "a", one.stage, one.microbatch) for one in sent]
            assert plain == simulation.sent(case, source, target)


@quick
@given(cases())
def test_activations_alone_and_gradients_alone_are_taken_as_they_are_sent(case: Case) -> None:
    for source in range(case.ranks):
        for target in set(range(case.ranks)) - {source}:
            sent, taken = simulation.sent(case, source, target), simulation.received(case, source, target)
            for direction in "ag":
                assert [one for one in sent if one[0] == direction] == [one for one in taken if one[0] == direction]


@pytest.mark.parametrize("text", TEXTS)
def test_flags_hold_for_all_numbers_and_a_false_one_fails_for_some(text: str) -> None:
    made = REGISTRY.resolve("schedule", text)
    of_text = [case for case in SMALL if case.text == text]
    assert all(map(simulation.ends_with_blocking_sends, of_text)) == made.blocking_sends
    assert all(map(simulation.is_one_stream, of_text)) == made.one_stream


@quick
@given(cases())
def test_no_more_are_live_than_the_paper_says(case: Case) -> None:
    for rank, actions in enumerate(case.order):
        live = most = 0
        for kind, _, _ in actions:
            live += kind == "F"
            most = max(most, live)
            live -= kind in "BW"
        expected = LIVE[family(case.text)](rank, case.ranks, case.microbatches, case.text)
        assert most == expected
        assert case.schedule.peak_live(rank, case.ranks, case.microbatches) == expected


@quick
@given(cases(HALVED))
def test_halved_schedules_wait_for_gradients_of_weights_as_the_paper_says(case: Case) -> None:
    """Zero Bubble, 2.3: (p-i) M_B + i M_W for ZB-H1 and (2(p-i)-1) M_B + 2i M_W for ZB-H2, counting i from 0."""
    times, p, m = (1 if case.text == "zb-h1" else 2), case.ranks, case.microbatches
    for rank, actions in enumerate(case.order):
        waiting = {"I": 0, "W": 0}
        most = {"I": 0, "W": 0}
        for kind, _, _ in actions:
            if kind == "F":
                waiting["I"] += 1
            if kind == "I":
                waiting["I"] -= 1
                waiting["W"] += 1
            for half in most:
                most[half] = max(most[half], waiting[half])
            waiting["W"] -= kind == "W"
        assert most["I"] == min(times * (p - rank) - (times - 1), m)
        # One more for as long as nothing comes between an I and its W.
        assert most["W"] == min(times * rank + 1, m)


def test_memory_compares_as_the_papers_say() -> None:
    def worst(text: str, p: int = 6, m: int = 24) -> int:
        made = REGISTRY.resolve("schedule", text)
        return max(made.peak_live(rank, p, m) for rank in range(p))

    assert worst("gpipe") == 24
    assert worst("1f1b") == worst("zb-h1") == 6
    assert worst("zb-h2") == worst("eager-1f1b") == 2 * 6 - 1
    # Chunks of half the size: twice as many are as much.
    assert worst("zbv") == 2 * worst("1f1b")
    assert worst("dualpipev") == 2 * worst("1f1b") + 1
    assert worst("dapple-pa(fit=4)") == worst("dapple-pb(fit=4)") == 4


@pytest.mark.parametrize("name", REGISTRY.names("schedule"))
def test_the_picture_in_its_file_is_what_it_does(name: str) -> None:
    made = REGISTRY.resolve("schedule", name)
    document = inspect.getdoc(importlib.import_module(type(made).__module__)) or ""
    head = re.search(r"^ +(\S+): (\d+) ranks, (\d+) micro-batches", document, re.MULTILINE)
    assert head, "it has no picture"
    facts = schedule_facts(REGISTRY.resolve("schedule", head[1]), head[1], int(head[2]), int(head[3]), Costs())
    drawn = schedule_picture(facts, width=116)
    rows = [part.plain.rstrip() for part in vars(drawn)["_renderables"] if isinstance(part, Text)]
    shown = [line.strip() for line in document.splitlines() if line.strip().startswith("rank ")]
    assert shown == [row for row in rows if row.startswith("rank ")]


NUMBERS = [(p, m) for p in range(1, 8) for m in range(1, 20)]


@pytest.mark.parametrize("text", TEXTS)
def test_few_micro_batches_are_refused_or_right(text: str) -> None:
    made = REGISTRY.resolve("schedule", text)
    for p, m in NUMBERS:
        refusal = made.refuses(p, m)
        if text.startswith("interleaved") and m % p:
            near = [k for k in (m // p * p, m // p * p + p) if k]
            assert f"given {m} on {p} ranks" in str(refusal)
            assert all(str(k) in str(refusal) for k in near)
        elif text == "dualpipev" and m < 2 * p:
            assert f"given {m} on {p} rank" in str(refusal)
            assert f"the nearest is {2 * p}" in str(refusal)
        else:
            assert refusal is None
            simulation.by_events(Case(text, p, m), lambda kind: 1)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("ranks", "number"), [(0, 4), (-1, 4), (4, 0), (4, -3), (-(10**30), 1)])
def test_numbers_below_one_are_refused(text: str, ranks: int, number: int) -> None:
    refusal = REGISTRY.resolve("schedule", text).refuses(ranks, number)
    assert refusal is not None
    assert f"given {ranks if ranks < 1 else number}" in refusal
    assert "nearest is 1" in refusal
