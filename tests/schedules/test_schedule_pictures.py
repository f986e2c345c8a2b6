"""Pictures of schedules fit their width, show idle time, and are well-formed whatever a schedule is called."""

from __future__ import annotations

import io
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from schedule_cases import Case, cases, costs, quick

from parbench.report.schedule import schedule_picture
from parbench.report.schedule_facts import ScheduleFacts, schedule_facts
from parbench.report.schedule_svg import schedule_svg
from parbench.schedule import Costs

SVG = "{http://www.w3.org/2000/svg}"


def facts_of(case: Case, cost: Costs, text: str | None = None) -> ScheduleFacts:
    return schedule_facts(case.schedule, text or case.text, case.ranks, case.microbatches, cost)


def printed(facts: ScheduleFacts, width: int, *, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, markup=False, highlight=False, emoji=False)
    console.print(schedule_picture(facts, width=width))
    return out.getvalue()


@quick
@given(cases(), costs, st.integers(20, 250))
def test_a_picture_fits_its_width_and_loses_no_rank(case: Case, cost: Costs, width: int) -> None:
    shown = printed(facts_of(case, cost), width)
    lines = shown.splitlines()
    assert all(len(line) <= width for line in lines)
    assert sum(line.startswith("rank ") for line in lines) == case.ranks
    assert shown.isascii() or not case.schedule.paper.title.isascii()
    assert "\x1b" not in shown


def test_cells_are_units_of_time() -> None:
    facts = facts_of(Case("1f1b", 2, 2), Costs(Fraction(1), Fraction(1, 2), Fraction(1, 2)))
    rows = [line.rstrip() for line in printed(facts, 100).splitlines() if line.startswith("rank")]
    # A half is the unit, so that a forward has two cells and a backward too.
    assert rows == [
        "rank 0  F0--- F1--- .  .  B0--- .  .  B1---",
        "rank 1  .  .  F0--- B0--- F1--- B1--- .  .",
    ]


def test_a_narrow_picture_says_what_a_column_is() -> None:
    facts = facts_of(Case("gpipe", 2, 4), Costs())
    whole = printed(facts, 25)
    rows = [line for line in whole.splitlines() if line.startswith("rank")]
    assert rows == ["rank 0  FFFF...BBBBBBBB", "rank 1  .FFFFBBBBBBBB.."]
    assert "a column is one unit of time" in " ".join(whole.split())
    assert "a column is 2.50 of 15 units of time" in " ".join(printed(facts, 14).split())


def test_colours_only_where_there_is_a_terminal() -> None:
    facts = facts_of(Case("zb-h1", 2, 3), Costs())
    assert "\x1b[" in printed(facts, 100, terminal=True)
    assert "\x1b" not in printed(facts, 100)


def test_words_say_denominator_costs_and_memory() -> None:
    words = " ".join(printed(facts_of(Case("1f1b", 4, 8), Costs()), 120).split())
    assert "assumed: F : I : W = 1 : 1 : 1, B = I + W, transfers that take no time" in words
    assert "bubble: 27.3 % (3/11) of a step is idle by the timeline, as its closed form says" in words
    assert "peak live micro-batches by rank: 4 3 2 1 (activations of a rank)" in words
    assert "with a barrier" not in words
    words = " ".join(printed(facts_of(Case("zbv", 2, 4), Costs(Fraction(3))), 120).split())
    assert "no closed form for these numbers" in words
    assert "(activations of one of a rank's 2 chunks)" in words
    words = " ".join(printed(facts_of(Case("zb-h2", 4, 8), Costs()), 120).split())
    assert "bubble: 0 % of a step" in words
    assert "with a barrier after every step: 11.1 % (1/9)" in words


@quick
@given(cases(), costs)
def test_an_svg_has_a_bar_per_action_within_its_bounds(case: Case, cost: Costs) -> None:
    root = ElementTree.fromstring(schedule_svg(facts_of(case, cost)))
    assert root.tag == f"{SVG}svg"
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("class") != "idle"]
    assert len(bars) == sum(map(len, case.order))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for one in root.iter(f"{SVG}rect"):
        assert float(one.get("x", "")) + float(one.get("width", "")) <= width
        assert float(one.get("y", "")) + float(one.get("height", "")) <= height
        assert float(one.get("width", "")) > 0


def test_an_svg_is_accessible_and_readable_in_the_dark() -> None:
    root = ElementTree.fromstring(schedule_svg(facts_of(Case("1f1b", 2, 3), Costs())))
    assert root.get("role") == "img"
    names = str(root.get("aria-labelledby")).split()
    texts = {one.get("id"): one.text for one in root if one.get("id")}
    assert texts[names[0]] == "1f1b: 2 ranks, 3 micro-batches"
    assert "bubble: 25.0 %" in str(texts[names[1]])
    assert "prefers-color-scheme: dark" in str(root.findtext(f"{SVG}style"))


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "\"&'<>]]>", "\x1b[31m\x00\ufffe\ud800", "é" * 300])
def test_hostile_names_stay_text(text: str) -> None:
    facts = facts_of(Case("gpipe", 2, 2), Costs(), text)
    root = ElementTree.fromstring(schedule_svg(facts))
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in printed(facts, 80)
