"""The log of a trace: numbers of what was counted on the profiler's events, in order, or none where nobody knows."""

import json
from fractions import Fraction

import pytest

from parbench.counting import Counted, op_of
from parbench.trace_file import Counts, Log, with_log
from parbench.tracing.mesh import axis_of, coordinate

ONE_STEP = ((100.0, 200.0),)
READINGS = [(1_000_000, 1_100_000), (2_000_000, 2_000_100), (3_000_000, 3_500_000)]


def counted(op, size, group="g", peer=None):
    return Counted(
        op=op,
        logical_bytes=Fraction(size),
        wire_bytes=Fraction(2 * size),
        group_size=2,
        group=group,
        dtype=None,
        peer=peer,
    )


def event(name, ts, dur=1.0, tid=1, cat="cpu_op"):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "pid": 1}


def document(*events, steps=((100.0, 200.0), (300.0, 400.0))):
    marks = [event("parbench:clock", ts) for ts in (10.0, 20.0, 30.0)]
    marks += [event("parbench:step", a, b - a) for a, b in steps]
    return json.dumps({"traceEvents": [*marks, *events]}).encode()


def log(*steps, in_trace=False, members=None, mesh=None, rank=0):
    counts = Counts(
        steps=steps,
        in_trace=in_trace,
        unreadable={},
        members={"g": (0, 1)} if members is None else members,
        backend="gloo",
    )
    return Log(rank=rank, mesh=mesh or {"dp": 2}, counts=counts, readings_ns=READINGS)


def own(data, told):
    return json.loads(with_log(data, told))["parbench"]


def test_each_event_of_a_step_gets_the_numbers_that_were_counted_at_its_place():
    events = [
        event("c10d::allreduce_", 110),
        event("c10d::send", 120),
        event("c10d::allreduce_", 130),
        event("c10d::allreduce_", 310),
        event("c10d::allreduce_", 320),
        event("c10d::send", 330),
    ]
    step = [counted("all_reduce", 8), counted("all_reduce", 16), counted("send", 4, peer=1)]
    rows = own(document(*events), log(step))["collectives"]
    found = [(row["number"], row["step"], row["op"], row["logical_bytes"], row["peer"]) for row in rows]
    assert found == [
        (0, 0, "all_reduce", 8, None),
        (1, 0, "send", 4, 1),
        (2, 0, "all_reduce", 16, None),
        (3, 1, "all_reduce", 8, None),
        (4, 1, "all_reduce", 16, None),
        (5, 1, "send", 4, 1),
    ]
    assert [row["issued_ns"] for row in rows] == [110_000, 120_000, 130_000, 310_000, 320_000, 330_000]
    assert rows[0]["wire_bytes"] == 16


def test_steps_of_a_period_are_told_apart():
    events = [event("c10d::allreduce_", 310)]
    rows = own(document(*events), log([], [counted("all_reduce", 8)]))["collectives"]
    assert [(row["step"], row["logical_bytes"]) for row in rows] == [(1, 8)]


def test_where_another_number_is_issued_than_was_counted_nobody_knows_which_is_which():
    events = [event("c10d::allreduce_", 110), event("c10d::send", 120), event("c10d::send", 130)]
    events += [event("c10d::allreduce_", 310), event("c10d::send", 320)]
    rows = own(document(*events), log([counted("all_reduce", 8), counted("send", 4, peer=1)]))["collectives"]
    assert [row.get("logical_bytes") for row in rows] == [8, None, None, 8, None]
    assert "group" not in rows[1]


def test_what_a_thread_issues_late_keeps_its_place_in_the_order():
    # The second of two is issued in the next step, and that step's second at its end.
    events = [event("c10d::allreduce_", ts) for ts in (110, 310, 320, 390)]
    rows = own(document(*events), log([counted("all_reduce", 8), counted("all_reduce", 16)]))["collectives"]
    assert [(row["step"], row["logical_bytes"]) for row in rows] == [(0, 8), (1, 16), (1, 8), (1, 16)]


def test_steps_that_were_counted_while_traced_may_differ():
    events = [event("c10d::allreduce_", 110), event("c10d::allreduce_", 310), event("c10d::allreduce_", 320)]
    sizes = [counted("all_reduce", size) for size in (1, 2, 3)]
    rows = own(document(*events), log(sizes, in_trace=True))["collectives"]
    assert [(row["step"], row["logical_bytes"]) for row in rows] == [(0, 1), (1, 2), (1, 3)]


def test_an_operator_that_another_one_carries_out_is_one_collective_and_threads_are_apart():
    events = [
        event("_c10d_functional::all_reduce", 110, 10),
        event("c10d::allreduce_", 112, 2),
        event("c10d::allreduce_", 114, 2, tid=2),
    ]
    data = document(*events, steps=ONE_STEP)
    rows = own(data, log([counted("all_reduce", 8), counted("all_reduce", 16)]))["collectives"]
    assert [(row["issued_ns"], row["logical_bytes"]) for row in rows] == [(110_000, 8), (114_000, 16)]


def test_what_is_outside_of_steps_is_no_part_of_them():
    events = [event("c10d::barrier", 50), event("c10d::allreduce_", 450)]
    assert own(document(*events), log([]))["collectives"] == []


def test_rings_of_sockets_hold_all_ranks_and_are_issued_where_their_thread_begins():
    events = [event("parbench:collective:all_reduce", 110, 5, tid=9)]
    told = own(document(*events, steps=ONE_STEP), log([counted("all_reduce", 8, group="ring of 2")], members={}))
    assert told["axes"] == {"ring of 2": {"axis": "dp", "members": [0, 1]}}
    assert [(row["op"], row["group"]) for row in told["collectives"]] == [("all_reduce", "ring of 2")]


def test_the_moment_known_best_joins_the_clocks():
    assert own(document(), log([]))["clock"] == {"monotonic_ns": 2_000_050, "trace_us": 20.0}


def test_peers_are_ranks_of_the_world():
    row = counted("send", 4, group="pair", peer=1)
    data = document(event("c10d::send", 110), steps=ONE_STEP)
    told = own(data, log([row], members={"pair": (2, 3)}, mesh={"dp": 2, "pp": 2}, rank=2))
    assert told["collectives"][0]["peer"] == 3
    assert told["coordinate"] == {"dp": 1, "pp": 0}
    assert told["axes"]["pair"] == {"axis": "pp", "members": [2, 3]}


def test_hostile_names_survive_byte_for_byte():
    name = 'a "quoted"\nname\t\\ \u2028 ünï \x00 </script>'
    data = document(event(name, 110))
    found = json.loads(with_log(data, log([])))
    assert name in [one["name"] for one in found["traceEvents"]]


@pytest.mark.parametrize("data", [b"", b"{", b'{"traceEvents": [{"name": "a" "b"}]}', b"[]"])
def test_what_is_no_trace_is_a_sentence(data):
    with pytest.raises(ValueError, match="no JSON"):
        with_log(data, log([]))


def test_a_trace_without_marks_of_the_clock_is_refused():
    with pytest.raises(ValueError, match="0 of 3 marks"):
        with_log(b'{"traceEvents": []}', log([]))


def test_operators_have_names_of_collectives():
    assert op_of("c10d::_allgather_base_") == "all_gather"
    assert op_of("_c10d_functional::reduce_scatter_tensor") == "reduce_scatter"
    assert op_of("aten::add") is None
    assert op_of("_c10d_functional::wait_tensor") is None


# ---- meshes


def test_ranks_count_along_the_last_axis_first():
    mesh = {"pp": 2, "dp": 2, "tp": 2}
    assert coordinate(mesh, 6) == {"pp": 1, "dp": 1, "tp": 0}
    assert [coordinate({"dp": 3}, rank) for rank in range(3)] == [{"dp": 0}, {"dp": 1}, {"dp": 2}]


@pytest.mark.parametrize(
    ("members", "mesh", "axis"),
    [
        ((0, 1), {"dp": 2}, "dp"),
        ((0, 1), {"dp": 1, "pp": 2}, "pp"),
        ((2, 3), {"dp": 2, "tp": 2}, "tp"),
        ((1, 3), {"dp": 2, "tp": 2}, "dp"),
        ((0, 1, 2, 3), {"dp": 2, "tp": 2}, "world"),
        ((0, 1, 2, 3), {"pp": 2, "dp": 2, "tp": 2}, "dp+tp"),
        ((0, 3), {"dp": 2, "tp": 2}, "dp+tp"),
        ((1,), {"dp": 2}, None),
        ((0, 5), {"dp": 2}, None),
    ],
)
def test_some_ranks_lie_along_an_axis(members, mesh, axis):
    assert axis_of(members, mesh) == axis


def test_annotations_shown_again_on_a_gpu_are_no_further_steps():
    """Kineto repeats an annotation on the device whose kernels were launched inside of it."""
    again = [event("parbench:step", a, b - a, tid=7, cat="gpu_user_annotation") for a, b in ((104, 199), (306, 401))]
    again.append(event("parbench:clock", 21, tid=7, cat="gpu_user_annotation"))
    events = [event("c10d::allreduce_", 110), event("c10d::allreduce_", 310), *again]
    rows = own(document(*events), log([counted("all_reduce", 8)]))["collectives"]
    assert [(row["step"], row.get("logical_bytes"), row.get("group")) for row in rows] == [(0, 8, "g"), (1, 8, "g")]
