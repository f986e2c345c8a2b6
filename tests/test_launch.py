"""Launches that are stopped, orphaned, repeated or asked for what is not there, through the real command line."""

import json
import signal
import time

import psutil
import pytest

from plugin_sources import strategy

pytestmark = pytest.mark.usefixtures("no_orphans")

SMOKE = ("digits", "--size", "smoke", "--warmup", 1, "--json")
FOREVER = (*SMOKE, "--set", "steps=1000000")


@pytest.fixture
def stepping(start, tmp_path):
    """Start a run that would never end, and wait until it has measured some rounds."""

    def begin(*arguments, pause=0.0, **options):
        mark = tmp_path / "stepping"
        tell = f"pathlib.Path({str(mark)!r}).touch() if self.steps == 20 else 0"
        before = f"time.sleep({pause}) if self.steps > 20 else {tell}"
        plugin = strategy(tmp_path, "steps_on", before=before)
        running = start(*FOREVER, "--plugin", plugin, "-s", "steps_on", *arguments, **options)
        deadline = time.monotonic() + 40
        while not mark.exists() and running.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return running

    return begin


def interrupted(done, code, by):
    assert done.code == code, done.err
    (record,) = done.records.values()
    assert record["status"] == "interrupted"
    assert by in record["reason"]
    assert len(record["rounds"]) >= 3
    assert record["metrics"]["samples_per_s"]["value"] > 0
    assert {step["phase"] for step in done.steps(record)} == {"warmup", "timed"}
    assert (done.folder(record) / "log" / "rank1.log").exists()
    assert done.runs["steps_on"]["status"] == "interrupted"
    assert not done.leftovers()


@pytest.mark.parametrize(
    ("number", "code", "by", "group"),
    [
        pytest.param(signal.SIGINT, 130, "Ctrl-C", True, id="Ctrl-C in a terminal"),
        pytest.param(signal.SIGTERM, 143, "SIGTERM", False, id="SIGTERM"),
        pytest.param(signal.SIGTERM, 143, "SIGTERM", True, id="SIGTERM to the group"),
    ],
)
def test_asked_once_to_stop_it_stores_what_was_measured(stepping, number, code, by, group):  # P13
    running = stepping()
    running.signal(number, group=group)
    asked_s = time.monotonic()
    done = running.wait()
    assert time.monotonic() - asked_s < 10
    interrupted(done, code, by)


def test_asked_once_it_finishes_the_round_and_asked_twice_it_does_not(stepping):  # P13
    running = stepping("--set", "steps_per_round=7", pause=5)
    running.signal(signal.SIGINT)
    time.sleep(1.0)
    assert running.process.poll() is None
    running.signal(signal.SIGINT)
    asked_s = time.monotonic()
    done = running.wait()
    assert time.monotonic() - asked_s < 8  # the round would take longer, and patience with it ends after ten seconds
    assert done.code == 130
    (record,) = done.records.values()
    assert record["status"] == "interrupted"
    assert all(one["steps"] == 7 for one in record["rounds"])
    assert not done.leftovers()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_while_torch_is_loading_it_stops_without_a_traceback(start, number, code):  # P13
    running = start(*FOREVER, "-s", "ddp")
    deadline = time.monotonic() + 30
    while not running.servers and time.monotonic() < deadline:
        time.sleep(0.005)
    running.signal(number, group=True)
    done = running.wait()
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert [record["status"] for record in done.records.values()] == ["interrupted"]
    assert not done.leftovers()


@pytest.mark.parametrize("fault", ["", "rank=1,step=25,kind=hang"])
def test_nobody_outlives_a_launcher_that_is_killed(stepping, fault):  # P14
    running = stepping(fault=fault)
    others = running.descendants
    assert len(running.ranks(2)) == 2
    time.sleep(0.5)
    running.process.kill()
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive
    assert running.wait().code == -signal.SIGKILL


def test_a_backend_that_is_not_there_is_one_line(parbench):  # C9
    done = parbench(*SMOKE, "-s", "ddp", "--backend", "nccl")
    if done.code == 0:
        pytest.skip("this machine has NCCL and GPUs")
    assert done.code in (2, 3)
    assert len(done.err.strip().splitlines()) == 1
    assert "--backend nccl" in done.err
    assert done.out == ""
    assert not done.records


def test_the_backend_and_too_many_ranks_are_told(parbench):  # C9, C10
    cores = psutil.cpu_count()
    done = parbench(*SMOKE, "-s", "ddp", "-s", "single", "-n", 2 * cores, "--steps", 5, "--device", "cpu")
    assert done.code == 0
    record = done.records["ddp"]
    assert record["chosen"]["backend"] == {"value": "gloo", "because": "tensors are on the CPU"}
    assert record["launch"]["ranks"] == 2 * cores
    (warning,) = [w for w in record["warnings"] if w["code"] == "oversubscribed"]
    assert f"{2 * cores} ranks of 1 threads share {cores} cores" in warning["message"]
    assert "oversubscribed" not in [w["code"] for w in done.records["single"]["warnings"]]


def test_repeats_are_fresh_launches_that_one_cell_combines(parbench):
    done = parbench(*SMOKE, "-s", "single", "-s", "ddp", "--steps", 10, "--repeats", 2)
    assert done.code == 0
    found = [json.loads(path.read_bytes()) for path in done.results.rglob("record.json")]
    assert sorted((r["spec"]["strategy"], r.get("repeat", 0)) for r in found) == [
        ("ddp", 0),
        ("ddp", 1),
        ("single", 0),
        ("single", 1),
    ]
    cells = {cell["strategy"]: cell for cell in done.document["cells"]}
    assert cells.keys() == {"single", "ddp"}
    for name, cell in cells.items():
        assert cell["launches"] == 2
        assert len(cell["launch_medians"]["step_time_s"]) == 2
        assert cell["spread"]["step_time_s"] >= 0
        walls = [r["wall_s"] / r["steps"] for x in found if x["spec"]["strategy"] == name for r in x["rounds"]]
        assert min(walls) <= cell["metrics"]["step_time_s"]["value"] <= max(walls)
        assert cell["rankable"]


def test_one_process_joins_the_launch_of_two_and_startup_has_its_parts(parbench):
    done = parbench(*SMOKE, "-s", "single", "-s", "ddp", "--steps", 10)
    single, ddp = done.records["single"], done.records["ddp"]
    assert single["spec"]["world_size"] == 1
    assert single["launch"]["ranks"] == ddp["launch"]["ranks"] == 2
    assert single["launch"]["interleaved_with"] == ["ddp"]
    assert all(len(r["rank_wall_s"]) == 1 for r in single["rounds"])
    assert {step["rank"] for step in done.steps(single)} == {0}
    startup = ddp["metrics"]["startup_s"]["value"]
    print("startup_s of ddp:", startup)
    assert ddp["warm_up"]["first_step_s"] < startup < done.seconds
    assert not done.leftovers()
