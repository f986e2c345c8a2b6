"""What a record says of traffic and held state, and when counts and closed forms disagree."""

import pytest

from parbench.accounts import account_cautions, account_metrics, held_of, traffic_of
from parbench.cases import Case, Measured
from parbench.facts import Inspected
from parbench.spec import RunSpec


def measured(*ranks, **spec):
    case = Case(cell=0, repeat=0, spec=RunSpec(workload="digits", strategy="x", **spec), spec_id="x")
    return Measured(case=case, inspected=ranks, shards=("parameters",))


def rank(sent=8.0, **changes):
    return Inspected(
        **{"sent": {"all_reduce": sent}, "wire": {"all_reduce": sent}, "held": {"parameters": 4}} | changes
    )


def test_the_rank_that_sends_most_and_the_one_that_holds_most_speak_for_all():
    m = measured(rank(8.0, held={"parameters": 9}), rank(9.0))
    assert (traffic_of(m).rank, traffic_of(m).sent) == (1, {"all_reduce": 9.0})
    assert (held_of(m).rank, held_of(m).held, held_of(m).shards) == (0, {"parameters": 9}, ("parameters",))
    assert account_metrics(m)["traffic_bytes_per_step"].value == 9.0
    assert "rank 1" in account_metrics(m)["traffic_bytes_per_step"].source


def test_what_was_not_inspected_is_unavailable_and_what_no_backend_says_too():
    for metric in account_metrics(measured()).values():
        assert (metric.value, metric.quality) == (None, "unavailable")
        assert "inspected" in metric.reason
    found = account_metrics(measured(rank(wire=None)))
    assert found["traffic_bytes_per_step"].value == 8.0
    assert found["wire_bytes_per_step"].quality == "unavailable"
    assert held_of(measured(rank(held=None))) is None


def test_estimates_are_called_so():
    wire = account_metrics(measured(rank()))["wire_bytes_per_step"]
    assert (wire.value, wire.quality) == (8.0, "estimated")
    assert wire.reason


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"traffic": {"all_reduce": 8.0}}, None),
        ({"traffic": {"all_reduce": 8.0, "broadcast": 0.0}}, None),
        ({"traffic": {"all_reduce": 9.0}}, "traffic_differs"),
        ({"traffic": {"all_reduce": 8.0, "broadcast": 1.0}}, "traffic_differs"),
        ({"memory": {"parameters": 4, "gradients": 4}}, None),
        ({"memory": {"parameters": 5, "gradients": 4}}, "memory_differs"),
        ({"unreadable": ("c10d::new_one",)}, "unread_collectives"),
    ],
)
def test_a_difference_is_a_warning_with_both_numbers(changes, code):
    found = account_cautions(measured(rank(), rank(**changes)))
    assert [one.code for one in found] == ([code] if code else [])
    if code:
        assert "rank 1" in found[0].message


def test_compile_time_is_a_metric_only_where_something_is_compiled():
    assert "compile_s" not in account_metrics(measured(rank()))
    assert account_metrics(measured(rank(), compile=True))["compile_s"].value is None
