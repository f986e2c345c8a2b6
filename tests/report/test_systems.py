"""The table of systems: a row per system that was measured, with its point, what it sent and how closely it trained."""

import tomllib
from pathlib import Path

import msgspec

from parbench.grammar import parse
from parbench.point import Point
from parbench.record import Agreement, Environment, Metric, RunRecord
from parbench.registry import Entry, Registry
from parbench.report.systems import systems_table
from parbench.spec import RunSpec


def record(strategy, ranks=2, status="complete", reason=None, sent=2048.0, **agreement):
    found = Agreement(**{"declared": "differently", "passed": True, "loss_difference": 3e-3} | agreement)
    sent_metric = Metric(value=sent, unit="bytes", better="lower", n=1, source="counted")
    return RunRecord(
        id="r",
        suite="s",
        status=status,
        reason=reason,
        started_at="now",
        spec=RunSpec(workload="digits", strategy=strategy, world_size=ranks),
        spec_id="x",
        environment=Environment(fingerprint="f", software="s", facts={}),
        metrics={"traffic_bytes_per_step": sent_metric} if status == "complete" else {},
        agreement=found if status == "complete" else None,
    )


def entry(name, point, title="A paper", url="https://example.org/1"):
    return Entry(name=name, summary="", origin="", paper_title=title, paper_url=url, point=point)


def test_a_system_has_a_row_with_its_point_and_what_is_no_system_has_none():
    entries = [entry("late", Point(synchrony="every k steps")), entry("single", None)]
    records = [record("late(period=4)"), record("late(period=4)", 4, "unsupported", "no | room"), record("single", 1)]
    assert systems_table(records, entries).splitlines() == [
        "| system | paper | fusion | compressor | collective | synchrony | order "
        "| bytes per step, 2 ranks | bytes per step, 4 ranks | agreement, 2 ranks | agreement, 4 ranks |",
        "| --- | --- | --- | --- | --- | --- | --- | --: | --: | --: | --: |",
        "| `late(period=4)` | [A paper](https://example.org/1) | one message | none | native | every k steps "
        "| as ready | 2.00 KiB | – | 3e-3 (differently) | – (1) |",
        "",
        r"1. no \| room",
    ]


def test_of_several_launches_the_worst_speaks():
    good, bad = record("late", loss_difference=1e-6), record("late", passed=False, loss_difference=0.5)
    assert "✗ 5e-1" in systems_table([good, bad, good], [entry("late", Point())])


def test_an_address_that_is_none_is_not_linked():
    shown = systems_table([record("late")], [entry("late", Point(), "A <b>", "javascript:alert(1)")])
    assert "javascript" not in shown
    assert "A &lt;b>" in shown


def test_every_system_there_is_has_been_measured_for_the_document():

    docs = Path(__file__).parents[2] / "docs"
    listed = tomllib.loads((docs / "systems.toml").read_text(encoding="utf-8"))["matrix"]["strategy"]
    systems = [one.name for one in Registry().describe("strategy") if one.point is not None]
    assert sorted({parse(text).name for text in listed}) == systems
    text = (docs / "systems.md").read_text(encoding="utf-8")
    assert all(f"| `{one}` |" in text for one in listed)


def test_points_are_listed_as_json():
    (found,) = [one for one in Registry().describe("strategy") if one.name == "local_sgd"]
    assert b'"synchrony":"every k steps"' in msgspec.json.encode(found)
