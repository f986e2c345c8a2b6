"""Files that are cut short, foreign, huge, hostile or newer: one sentence, the right exit code, no wrong number."""

import gzip
import json

import pytest

from parbench.errors import UnreadableError, UsageError
from parbench.tracing import chrome, chromefile
from parbench.tracing.folder import opened


def event(name="aten::mm", ts=0, dur=10, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **more}


def written(path, *events, rank=0, **more):
    whole = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"}, "traceEvents": events, **more}
    path.write_bytes(json.dumps(whole).encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_short_anywhere_is_unreadable(tmp_path, packed):
    whole = written(tmp_path / "rank0.json", *[event(ts=k) for k in range(20)]).read_bytes()
    data = gzip.compress(whole, mtime=0) if packed else whole
    for length in [*range(0, len(data) - 1, 37), len(data) - 1]:
        path = tmp_path / "cut.json"
        path.write_bytes(data[:length])
        with pytest.raises(UnreadableError, match=r"cut\.json"):
            chrome.read(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "package", "version": "1"}',
        "[1, 2",
        "null",
        '"text"',
        "\x89PNG\r\n",
        "[" * 100_000,
        '{"traceEvents": 7}',
        "",
    ],
)
def test_a_foreign_file_is_no_trace(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UnreadableError, match=r"x\.json"):
        chrome.read(path)


def test_a_few_kilobytes_that_unpack_to_gigabytes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(chromefile, "MAX_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**25))
    with pytest.raises(UnreadableError, match="larger than 1 MiB unpacked; trace fewer steps"):
        chrome.read(path)


def test_names_with_raw_control_characters_are_read_leniently_and_that_is_said(tmp_path):
    path = written(tmp_path / "rank0.json", event(name="aten::NEW_LINE"))
    path.write_bytes(path.read_bytes().replace(b"NEW_LINE", b"new\nline\xff"))
    trace = chrome.read(path)
    assert trace.spans[0].name.startswith("aten::new\nline")
    assert "not strict JSON" in trace.notes[0]


def test_an_event_that_is_none_costs_no_other_one(tmp_path):
    bad = [{"ph": "X", "name": {"a": 1}}, {"ph": "X", "name": "x", "ts": "soon"}, 7, None]
    trace = chrome.read(written(tmp_path / "rank0.json", event(), *bad, event(ts=20)))
    assert len(trace.spans) == 2
    assert "4 of 6 events" in trace.notes[0]


def test_times_that_are_none_are_left_out(tmp_path):
    events = [event(dur=-1), event(ts=1e300), event(dur=1e300), event(ts=5)]
    assert [span.start_ns for span in chrome.read(written(tmp_path / "rank0.json", *events)).spans] == [5000]


def test_arguments_may_be_anything(tmp_path):
    hostile = [
        [],
        7,
        "x",
        {"Input Dims": {"a": 1}, "Sequence number": "x"},
        {"Input Dims": [[10**30]], "Input type": [7]},
        {"Input Dims": json.loads("[" * 500 + "]" * 500)},
    ]
    events = [event(name="c10d::allreduce_", ts=k, dur=0.5, args=args) for k, args in enumerate(hostile)]
    trace = chrome.read(written(tmp_path / "rank0.json", *events))
    assert [one.op for one in trace.collectives] == ["all_reduce"] * 6
    assert all(one.logical_bytes is None for one in trace.collectives)


@pytest.mark.parametrize("said", [{"rank": -1}, {"rank": 10**30, "world_size": 10**30}, {"rank": "x"}, [], 7])
def test_whoever_a_trace_says_it_is_of_it_is_of_a_rank(tmp_path, said):
    path = tmp_path / "my_rank3_trace.json"
    path.write_text(json.dumps({"traceEvents": [event()], "distributedInfo": said}))
    trace = chrome.read(path)
    assert (trace.rank, trace.world_size <= 10**6) == (3, True)
    assert "taken for rank 3 by its name" in trace.notes[0]


def own(**more):
    part = {
        "schema": {"name": "parbench.trace", "major": 1, "minor": 0},
        "rank": 1,
        "world_size": 2,
        "backend": "gloo",
        "clock": {"monotonic_ns": 5_000_000, "trace_us": 1000.0},
    }
    return part | more


def test_a_newer_trace_of_parbench_says_so(tmp_path):
    newer = own(schema={"name": "parbench.trace", "major": 2, "minor": 0}, clock="another shape")
    with pytest.raises(UnreadableError, match="newer version of parbench"):
        chrome.read(written(tmp_path / "rank1.json", event(), parbench=newer))
    minor = own(schema={"name": "parbench.trace", "major": 1, "minor": 9}, unknown=1)
    assert chrome.read(written(tmp_path / "rank1.json", event(), parbench=minor)).rank == 1


@pytest.mark.parametrize(
    "wrong", [{"rank": 2}, {"rank": -1}, {"clock": 7}, {"collectives": [{"op": 1}]}, {"schema": 1}]
)
def test_a_damaged_part_of_parbench_is_unreadable(tmp_path, wrong):
    with pytest.raises(UnreadableError):
        chrome.read(written(tmp_path / "rank1.json", event(), parbench=own(**wrong)))


def test_a_merged_trace_is_no_trace_of_a_rank(tmp_path, command):
    folder = tmp_path / "job"
    folder.mkdir()
    written(folder / "rank0.json", event())
    assert command(folder, "-o", folder / "merged.json")[0] == 0
    code, out, err = command(folder)  # it lies among the others now
    assert code == 0
    assert "merged.json: a merged trace, not a trace of one rank; give the traces of the ranks" in err
    assert "1 of 2 ranks" in out


def test_two_traces_of_one_rank_are_refused_with_both_names(tmp_path):
    written(tmp_path / "a.json", event())
    written(tmp_path / "b.json", event())
    with pytest.raises(UsageError, match=r"a\.json.*b\.json.*both of rank 0"):
        opened(tmp_path)


def test_a_folder_with_a_damaged_trace_shows_the_others_and_says_so(tmp_path, command):
    written(tmp_path / "rank0.json", event(name="ProfilerStep#1", cat="user_annotation"), event())
    (tmp_path / "rank1.json").write_text('{"traceEvents": [')
    code, out, err = command(tmp_path)
    assert code == 0
    assert "1 of 2 ranks" in out
    assert "cut short" in err
    assert "1 of 2 files cannot be read" in err
    assert command(tmp_path, "--strict")[0] == 7
    code, document, _ = command(tmp_path, "--json")
    assert "cut short" in document["problems"][0]


def stored(folder):
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")


@pytest.mark.parametrize(
    ("make", "code", "sentence"),
    [
        (lambda path: None, 2, "there is no file or folder"),
        (lambda path: path.mkdir(), 2, "no traces"),
        (lambda path: path.write_text("{}"), 7, "no trace in Chrome's format"),
        (lambda path: (path.mkdir(), (path / "record.json").write_text("{}")), 2, "run it again without --no-trace"),
        (lambda path: stored(path / "a"), 2, "run it again without --no-trace"),
        (lambda path: (stored(path / "a"), stored(path / "b")), 2, "holds 2 runs; give one of them, such as"),
    ],
)
def test_what_is_no_trace_ends_with_one_sentence_and_its_code(tmp_path, command, make, code, sentence):
    path = tmp_path / "what.json"
    make(path)
    ended, out, err = command(path)
    assert (ended, out) == (code, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_merged_trace_that_cannot_be_stored_ends_with_6_after_the_tables(tmp_path, command):
    written(tmp_path / "rank0.json", event())
    code, out, err = command(tmp_path / "rank0.json", "-o", tmp_path / "missing" / "m.json")
    assert code == 6
    assert "1 of 2 ranks" in out
    assert "give another name to -o" in err
    assert command(tmp_path / "rank0.json", "-o", tmp_path)[0] == 6
