"""Cells of a suite as pytest-benchmark tests: collected without torch, replayed exactly, compared as users know it."""

import importlib.metadata
import json
import os
import subprocess
import sys

import msgspec
import pytest
from compare_cases import a_record, runs

from parbench.benchfile import extra_info, read_benchmarks
from parbench.errors import UnreadableError, UsageError
from parbench.pytest_plugin import slowest_rank_seconds, tell_rounds

SUITE = """
[workload]
name = "digits"
[matrix]
size = ["smoke"]
strategy = ["single", "ddp"]
world_size = [2]
[run]
steps = 30
warmup = 5
"""
ENTRY_POINTS = {one.value for one in importlib.metadata.entry_points(group="pytest11")}


class FakeBenchmark:
    """Times calls as pytest-benchmark's pedantic mode does."""

    def __init__(self):
        self.extra_info = {}
        self.seconds = []

    def pedantic(self, target, *, rounds):
        for _ in range(rounds):
            before = slowest_rank_seconds()
            target()
            self.seconds.append(slowest_rank_seconds() - before)


def test_rounds_are_told_as_they_were_measured():
    benchmark = FakeBenchmark()
    tell_rounds(benchmark, [0.5, 0.25, 1.0], 3)
    assert benchmark.seconds == [0.5, 0.25, 1.0]


def test_live_rounds_are_taken_one_by_one_as_they_are_asked_for():
    taken = []

    def live():
        while True:
            taken.append(len(taken))
            yield 0.5

    tell_rounds(FakeBenchmark(), live(), 4)
    assert taken == [0, 1, 2, 3]


def test_a_plain_benchmark_with_this_clock_is_refused():
    with pytest.raises(UsageError, match=r"benchmark\(function\) cannot use it"):
        slowest_rank_seconds()
    benchmark = FakeBenchmark()
    with pytest.raises(StopIteration):
        tell_rounds(benchmark, [0.5], 2)
    with pytest.raises(UsageError):
        slowest_rank_seconds()


def a_file(tmp_path, name, records):
    """Write what pytest-benchmark writes for one benchmark per run."""
    entries = [{"name": "n", "stats": {}, "extra_info": extra_info([record])} for record in records]
    path = tmp_path / name
    path.write_bytes(msgspec.json.encode({"machine_info": {}, "benchmarks": [*entries, {"extra_info": {"x": 1}}]}))
    return path


def test_check_reads_benchmark_files(command, tmp_path):
    steady = [0.0100, 0.0102, 0.0099, 0.0101, 0.0098, 0.0102, 0.0099, 0.0101]
    (tmp_path / "saved").mkdir()
    for k, record in enumerate(runs(steady)):
        a_file(tmp_path / "saved", f"{k:04d}.json", [record])
    slow = a_file(tmp_path, "slow.json", runs([0.02], first=500))
    code, document, _ = command("check", slow, "--baseline", tmp_path / "saved", "--json")
    assert code == 1
    assert {one["metric"]: one["outcome"] for one in document["checked"]}["step_time_s"] == "regression"
    assert document["checked"][0]["runs"] == [8, 1]
    other = a_file(tmp_path, "other.json", runs([0.01], first=500, fingerprint="other"))
    assert command("check", other, "--baseline", tmp_path / "saved")[0] == 1


def test_what_is_no_benchmark_file_is_unreadable(tmp_path):
    for text in ("", "{", '{"benchmarks": 3}', '{"benchmarks": [{"extra_info": {"parbench": 1}}], "machine_info": {}}'):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(UnreadableError, match=r"bad\.json"):
            read_benchmarks(path)


def test_extra_information_has_what_a_reader_wants():
    told = extra_info([a_record(together=["single"])])
    assert told["step_time_s"] == 0.01
    assert told["samples_per_s"] == 6400
    assert told["agreement"]["passed"] is True
    assert "measured before" in told["replayed"]
    assert json.dumps(told)


def pytest_in(folder, *arguments, fault=""):
    """Run pytest in a process of its own; the plug-in is found by its entry point where it is installed."""
    plugin = [] if "parbench.pytest_plugin" in ENTRY_POINTS else ["-p", "parbench.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PARBENCH_FAULT": fault, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)


def test_a_suite_is_collected_alone_and_without_torch(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_collection_finish():\n    assert 'torch' not in sys.modules\n"
    )
    done = pytest_in(tmp_path, "--parbench-suite", "suite.toml", "--collect-only", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digits/smoke single -n 2" in done.stdout
    assert "digits/smoke ddp -n 2" in done.stdout
    assert "test_other" not in done.stdout
    done = pytest_in(tmp_path, "--parbench-suite", "suite.toml", "test_other.py", "--collect-only", "-q")
    assert "test_other" in done.stdout
    assert "digits/smoke ddp" in done.stdout


def test_a_suite_that_is_wrong_is_one_sentence(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE.replace("steps", "step"))
    done = pytest_in(tmp_path, "--parbench-suite", "suite.toml", "--collect-only", "-q")
    assert done.returncode != 0
    assert "steps" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_compare_fail_of_pytest_benchmark_finds_a_slow_rank(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    flags = ("--parbench-suite", "suite.toml", "--benchmark-storage", "saved")
    done = pytest_in(tmp_path, *flags, "--benchmark-autosave")
    assert done.returncode == 0, done.stdout + done.stderr
    (saved,) = (tmp_path / "saved").rglob("*.json")
    for one in json.loads(saved.read_bytes())["benchmarks"]:
        assert one["stats"]["median"] == pytest.approx(one["extra_info"]["step_time_s"], rel=1e-6)
        assert one["options"]["timer"] == "slowest_rank_seconds"
    assert len(list((tmp_path / "results").rglob("record.json"))) == 2
    slow = "rank=0,step=0,kind=slow,factor=10"  # by sleeping: ten times as long on any machine
    done = pytest_in(tmp_path, *flags, "--benchmark-compare", "--benchmark-compare-fail=median:10%", fault=slow)
    assert done.returncode != 0
    assert "Performance has regressed" in done.stdout + done.stderr
