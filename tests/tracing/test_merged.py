"""One file of all ranks: it keeps to the format, on one clock, with every event, hostile and large ones too."""

import gzip
import json

import pytest
from crossings import crossings

from parbench.tracing import chrome, clocks
from parbench.tracing.chromefile import load, parsed
from parbench.tracing.format import problems
from parbench.tracing.merged import write_merged


def merged(folder, **more):
    files = {rank: folder / f"rank{rank}.json.gz" for rank in (0, 1)}
    found = clocks.aligned([chrome.read(path) for path in files.values()])
    done = write_merged(files, found, packed=True, **more)
    return found, done, json.loads(gzip.decompress(done.data))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor", "pipeline"])
def test_a_merged_trace_keeps_every_operator_and_to_the_format(foreign, kind):
    found, done, whole = merged(foreign / kind)
    events = whole["traceEvents"]
    assert len(events) == done.events
    assert problems(parsed(gzip.decompress(done.data), "merged").events) == []
    assert crossings(parsed(gzip.decompress(done.data), "merged").events) == []
    for trace in found.traces:
        own = load(foreign / kind / f"rank{trace.rank}.json.gz").events
        operators = [event.name for event in own if event.cat == "cpu_op"]
        assert [e["name"] for e in events if e["pid"] == trace.rank and e.get("cat") == "cpu_op"] == operators
        bars = [e for e in events if e["pid"] == trace.rank and e.get("cat") == "collective"]
        assert len(bars) == len([one for one in trace.collectives if one.end_ns is not None])
    assert whole["parbench"]["uncertainty_ns"] == found.uncertainty_ns


def test_arrows_lead_from_the_last_to_come_to_the_others(foreign):
    _, _, whole = merged(foreign / "ddp")
    starts = {e["id"]: e for e in whole["traceEvents"] if e["ph"] == "s" and e["cat"] == "side"}
    ends = {e["id"]: e for e in whole["traceEvents"] if e["ph"] == "f" and e["cat"] == "side"}
    assert starts.keys() == ends.keys()
    assert len(starts) >= 5  # six all-reduces of two ranks; one that began after the other had left has none
    bars = {(e["pid"], e["ts"]) for e in whole["traceEvents"] if e.get("cat") == "collective"}
    assert all((one["pid"], one["ts"]) in bars for one in starts.values())
    assert all(one["pid"] != ends[key]["pid"] and one["ts"] <= ends[key]["ts"] for key, one in starts.items())


def test_bytes_sent_are_counted_up(foreign):
    _, _, whole = merged(foreign / "ddp")
    counted = [e["args"]["bytes"] for e in whole["traceEvents"] if e["name"] == "logical bytes sent" and e["pid"] == 1]
    assert counted == sorted(counted)
    assert counted[-1] == 3 * 4 * (64 * 512 + 512 + 512 * 520 + 520)


def test_a_trace_that_is_too_large_loses_its_shortest_operators_and_says_so(foreign):
    _, whole, _ = merged(foreign / "fsdp")
    _, less, events = merged(foreign / "fsdp", most_bytes=whole.size_bytes // 2)
    assert less.size_bytes < whole.size_bytes * 0.75
    assert "operators" in less.notes[0]
    durations = [e["dur"] for e in events["traceEvents"] if e.get("cat") == "cpu_op" and e["pid"] == 0]
    everything = sorted(event.dur for event in load(foreign / "fsdp" / "rank0.json.gz").events if event.cat == "cpu_op")
    assert min(durations) >= everything[-len(durations)] - 0.001
    assert sum(1 for e in events["traceEvents"] if e.get("cat") == "collective") == 36


def test_hostile_names_survive(tmp_path):
    names = ['a "quoted" \\ name', "next\nline\ttab", "é 漢 😀 \u2028", "</script><b>", "\x1b[31mred", "=1+1"]
    for rank in (0, 1):
        events = [
            {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": name, "ts": k, "dur": 0.5}
            for k, name in enumerate(names)
        ]
        whole = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode()))
    _, _, whole = merged(tmp_path)
    assert [e["name"] for e in whole["traceEvents"] if e["ph"] == "X" and e["pid"] == 1] == names
    threads = [e["args"]["name"] for e in whole["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 1]
    assert threads == [f"7 {name}" for name in names]


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        ({"ph": "?", "name": "x"}, "no phase"),
        ({"ph": "X", "name": "x", "dur": -1}, "ends before it begins"),
        ({"ph": "X", "name": ""}, "no name"),
        ({"ph": "s", "name": "x", "cat": "c"}, "needs an id"),
        ({"ph": "C", "name": "x", "args": {"a": "b"}}, "needs numbers"),
        ({"ph": "i", "name": "x", "s": "q"}, "no scope"),
        ({"ph": "M", "name": "window_title"}, "no metadata"),
    ],
)
def test_the_check_of_the_format_finds_what_breaks_it(event, wrong):
    good = {"ph": "X", "name": "fine", "ts": 0, "dur": 1}
    events = parsed(json.dumps({"traceEvents": [good, {"pid": 1, "tid": 1, "ts": 0, **event}]}).encode(), "x").events
    (sentence,) = problems(events)
    assert wrong in sentence


def test_events_that_cross_on_a_thread_are_found():
    def event(start, length, tid=1):
        return {"ph": "X", "name": f"from {start}", "ts": start, "dur": length, "pid": 1, "tid": tid}

    def found(*events):
        return crossings(parsed(json.dumps({"traceEvents": events}).encode(), "x").events)

    assert found(event(0, 10), event(2, 3), event(5, 5), event(8, 20, tid=2)) == []
    assert len(found(event(0, 10), event(8, 20))) == 1
