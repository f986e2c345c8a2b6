"""`parbench trace`: what is printed of traces, in which form; values by hand."""

import gzip
import json
import subprocess
import sys

import pytest

MS = 1000  # of a trace's microseconds


def span(name, start, end, cat="user_annotation", tid=1, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 9,
        "tid": tid,
        "ts": start * MS,
        "dur": (end - start) * MS,
        "args": args,
    }


@pytest.fixture
def folder(tmp_path):
    """Two ranks of one step of 100 ms; rank 1 is slow: it comes to the all-reduce 30 ms after rank 0.

    rank 0   |forward 20|backward 20|  all_reduce 40..80 |optimizer 10|
    rank 1   |forward 40|backward 30|     70..80         |optimizer 10|
    """
    job = tmp_path / "job"
    job.mkdir()
    for rank, (forward, backward) in enumerate(((20, 40), (40, 70))):
        events = [
            span("ProfilerStep#7", 0, 100),
            span("aten::linear", 0, forward, cat="cpu_op"),
            span("autograd::engine::evaluate_function: AddmmBackward0", forward, backward, cat="cpu_op"),
            span("aten::mm", forward, backward, cat="cpu_op"),
            span(
                "c10d::allreduce_",
                backward,
                backward + 0.001,
                cat="cpu_op",
                **{"Input Dims": [[[2_500_000]], []], "Input type": ["TensorList", ""]},
            ),
            span("gloo:all_reduce", backward, 80, tid=5, **{"Input Dims": [[2_500_000]], "Input type": ["float"]}),
            span("Optimizer.step#SGD.step", 80, 90),
        ]
        group = {"pg_name": "0", "ranks": [0, 1]}
        info = {"rank": rank, "world_size": 2, "backend": "gloo", "pg_config": [group]}
        whole = {"distributedInfo": info, "host_name": "a", "baseTimeNanoseconds": 10**18, "traceEvents": events}
        (job / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode()))
    return job


def test_a_slow_rank_shows_as_waiting_on_the_others_not_as_transfer(folder, command):
    code, document, err = command(folder, "--json")
    assert (code, err) == (0, "")
    assert document["schema"] == {"name": "parbench.trace.summary", "major": 1, "minor": 0}
    zero, one = document["ranks"]
    assert zero["step_s"] == pytest.approx(0.1)
    parts = {name: round(seconds, 6) for name, seconds in zero["breakdown"].items() if seconds}
    exposed = "exposed_comm/all_reduce/world"
    assert parts == {"forward": 0.02, "backward": 0.02, "wait": 0.03, exposed: 0.01, "optimizer": 0.01, "other": 0.01}
    assert one["breakdown"]["wait"] == 0
    assert one["breakdown"][exposed] == pytest.approx(0.01)
    assert zero["unattributed_s"] == pytest.approx(0.01)
    (row,) = document["communication"]
    assert (row["op"], row["count"], row["ranks"], row["buffer_bytes"]) == ("all_reduce", 1, 2, 10_000_000)
    assert row["transfer_s"] == pytest.approx(0.01)
    assert row["waiting_s"] == pytest.approx(0.015)  # 30 ms and 0
    assert row["busbw_bytes_per_s"] == pytest.approx(1e9)  # 10 MB in 10 ms, factor 2 (n-1)/n = 1
    assert document["stragglers"][0]["rank"] == 1
    assert document["stragglers"][0]["delayed_s"] == pytest.approx(0.03)
    assert document["matrix"]["sent"] == [[0, 10_000_000], [10_000_000, 0]]


def test_the_tables_say_the_same(folder, command):
    code, out, _ = command(folder)
    assert code == 0
    assert "2 of 2 ranks · 1 step each · 2 of 2 candidate events recognised" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "30 ms  30%" in lines["wait"]
    assert "1.00 GB/s" in lines["all_reduce"]
    assert "9.54 MiB" in lines["all_reduce"]


def test_one_rank_alone_says_that_waiting_cannot_be_told(folder, command):
    code, document, _ = command(folder / "rank0.json.gz", "--json")
    assert code == 0
    assert document["ranks"][0]["breakdown"]["wait"] == 0
    assert "1 of 2 ranks have no trace here" in document["notes"][0]


def test_the_merged_file_is_where_it_was_asked_for_and_is_a_trace_again(folder, command, tmp_path):
    merged = tmp_path / "merged.json"
    code, document, err = command(folder, "-o", merged, "--json")
    assert code == 0
    assert document["merged"] == str(merged)
    assert "events on one clock" in err
    whole = json.loads(merged.read_bytes())
    assert whole["parbench"]["schema"]["name"] == "parbench.trace.merged"
    titles = [e["args"]["name"] for e in whole["traceEvents"] if e["name"] == "process_name"]
    assert titles == ["rank 0", "rank 1"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job", "merged.json"]


def test_reading_traces_needs_no_torch(folder):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['parbench', 'trace', {str(folder)!r}]\n"
        "from parbench.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "all_reduce" in done.stdout
