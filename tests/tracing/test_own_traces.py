"""parbench's own traces: the log beside the events says what gloo does not, and whose clock it is."""

import json

import msgspec
import pytest
from trace_cases import collective, span

from parbench.tracing import chrome, gloo
from parbench.tracing.folder import opened
from parbench.tracing.issued import as_annotated

BASE_NS = 5_000_000 - 1_000_000  # of the clock below


def event(name, ts, dur, tid=1, cat="user_annotation"):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


def read(tmp_path, events, rows, **more):
    part = {
        "schema": {"name": "parbench.trace", "major": 1, "minor": 0},
        "rank": 1,
        "world_size": 4,
        "backend": "gloo",
        "host": "abc",
        "coordinate": {"dp": 0, "tp": 1},
        "clock": {"monotonic_ns": 5_000_000, "trace_us": 1000.0},
        "axes": {"world": {"axis": "world", "members": [0, 1, 2, 3]}, "g2": {"axis": "tp", "members": [0, 1]}},
        "collectives": rows,
    }
    path = tmp_path / "rank1.json"
    path.write_text(json.dumps({"traceEvents": events, "parbench": part | more}))
    return chrome.read(path)


def row(op, number, ts, group="world", **more):
    return {"op": op, "number": number, "step": 0, "group": group, "issued_ns": round(ts * 1000), **more}


def test_the_log_and_the_events_of_gloo_are_put_together(tmp_path):
    trace = read(
        tmp_path,
        [
            event("parbench:step", 1000, 100),
            event("parbench:backward", 1010, 50),
            event("c10d::allreduce_", 1020, 2, cat="cpu_op"),
            event("gloo:all_reduce", 1023, 10, tid=8),
            event("c10d::_reduce_scatter_base_", 1040, 2, cat="cpu_op"),
            event("gloo:all_reduce", 1043, 10, tid=9),
        ],
        [
            row("all_reduce", 0, 1020, logical_bytes=600.0, wire_bytes=600.0, dtype="float32"),
            row("reduce_scatter", 1, 1040, "g2", logical_bytes=50.0, wire_bytes=100.0),
        ],
    )
    assert (trace.rank, trace.world_size, trace.host, trace.coordinate) == (1, 4, "abc", {"dp": 0, "tp": 1})
    assert [span.kind for span in trace.spans if span.name.startswith("parbench:")] == ["step", "backward"]
    first, second = trace.collectives
    assert (first.start_ns, first.end_ns) == (BASE_NS + 1_023_000, BASE_NS + 1_033_000)
    assert (first.members, first.axis, first.logical_bytes) == ((0, 1, 2, 3), "world", 600.0)
    assert (second.op, second.shown_as, second.axis) == ("reduce_scatter", "gloo:all_reduce", "tp")
    assert (second.logical_bytes, second.wire_bytes, second.issued_ns) == (50.0, 100.0, BASE_NS + 1_040_000)
    assert (trace.recognised, trace.candidates, trace.notes) == (2, 2, ())


def test_what_was_issued_before_the_steps_is_no_candidate(tmp_path):
    """A barrier and a collective of the harness before the first row of the log."""
    events = [event("gloo:barrier", 900, 5, tid=8), event("gloo:all_reduce", 950, 5, tid=8)]
    trace = read(tmp_path, [*events, event("gloo:all_reduce", 1030, 5, tid=8)], [row("all_reduce", 0, 1020)])
    assert trace.collectives[0].start_ns == BASE_NS + 1_030_000
    assert (trace.recognised, trace.candidates) == (1, 1)


def test_a_collective_that_was_not_seen_to_run_is_said(tmp_path):
    trace = read(tmp_path, [event("parbench:step", 1000, 100)], [row("all_reduce", 0, 1020)])
    assert trace.collectives[0].end_ns is None
    assert trace.notes == ("1 of 1 collectives have no event that says when they ran",)


def test_collectives_over_sockets_of_parbench_have_their_annotation(tmp_path):
    trace = read(tmp_path, [event("parbench:collective:all_reduce", 1020, 30, tid=5)], [row("all_reduce", 0, 1020)])
    (one,) = trace.collectives
    assert (one.start_ns, one.end_ns) == (BASE_NS + 1_020_000, BASE_NS + 1_050_000)
    assert as_annotated(one, {}) == one


def test_what_could_not_be_read_of_a_step_is_said(tmp_path):
    trace = read(tmp_path, [event("parbench:step", 1000, 100)], [], unreadable={"c10d::new_": 3})
    assert trace.notes == ("issued and not understood: c10d::new_",)


def test_threads_of_two_groups_are_told_apart_though_both_run_all_reduces():
    """Group a's first is slow, so that b's begin before a's second, which was issued before them.

    thread 1 (a)   |------a0------||--a1--|
    thread 2 (b)      |b0||b1|
    """
    issued = [("a", 0), ("a", 1), ("b", 2), ("b", 3)]
    listed = [collective("all_reduce", t, None, None, number=k, axis=g) for k, (g, t) in enumerate(issued)]
    listed = [type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "group": one.axis}) for one in listed]
    events = [
        span("collective", *times, name="gloo:all_reduce", thread=thread)
        for thread, *times in (("1", 0.5, 20), ("2", 2.5, 4), ("2", 4, 6), ("1", 20, 30))
    ]
    found, left = gloo.timed(listed, events)
    assert left == 0
    assert [(one.group, one.start_ns // 100 / 10) for one in found] == [("a", 0.5), ("a", 20), ("b", 2.5), ("b", 4)]


@pytest.mark.parametrize("op", ["all_reduce", "send"])
def test_an_event_never_belongs_to_a_call_that_comes_after_it(op):
    listed = [collective(op, 10, None, None, peer=1)]
    found, left = gloo.timed(listed, [span("collective", 5, 8, name=f"gloo:{op}", thread="1")])
    assert (found, left) == (listed, 1)


def test_two_groups_of_which_nothing_was_seen_to_run_are_no_error():
    listed = [collective("all_reduce", 10, None, None), collective("all_reduce", 20, None, None, axis="tp")]
    listed = [msgspec.structs.replace(one, group=str(k)) for k, one in enumerate(listed)]
    assert gloo.timed(listed, []) == (listed, 0)


def test_what_parbenchs_sockets_carried_takes_no_event_of_gloo():
    ring, native = collective("all_reduce", 4, 10, 20), collective("all_reduce", 5, None, None, number=1)
    event = span("collective", 13, 15, "gloo:all_reduce", thread="pt_gloo_runloop")
    found, left = gloo.timed([ring, native], [event])
    assert (found[0], left) == (ring, 0)
    assert (found[1].start_ns, found[1].end_ns) == (event.start_ns, event.end_ns)


def test_execution_traces_beside_the_traces_of_a_run_are_no_traces(tmp_path):
    run = tmp_path / "ddp-n2"
    (run / "trace").mkdir(parents=True)
    (run / "record.json").write_text("{}")
    events = [event("parbench:step", 1000, 100)]
    read(run / "trace", events, [])
    (run / "trace" / "execution1.json").write_text('{"nodes": []}')
    found = opened(run)
    assert [one.name for one in found.files.values()] == ["rank1.json"]
    assert not found.problems
