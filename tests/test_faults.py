"""Ranks that fail, hang, slow down or count wrongly, through the real command line."""

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from parbench.errors import UsageError
from parbench.faults import parse_fault
from plugin_sources import strategy

pytestmark = pytest.mark.usefixtures("no_orphans")

SHORT = ("digits", "--size", "smoke", "--steps", 6, "--warmup", 1, "--json")
THREE = (*SHORT, "-s", "single", "-s", "ddp", "-s", "no_overlap")
TIMING = ("step_time_s", "samples_per_s")


def failed_alone(done, status, *, culprit="ddp"):
    """Check that one strategy failed, named and without numbers, and that the others were measured and stored."""
    records = done.records
    assert records.keys() == done.runs.keys() == {"single", "ddp", "no_overlap"}
    for name, record in records.items():
        if name == culprit:
            assert record["status"] == status
            assert not any(record["metrics"].get(metric, {}).get("value") for metric in TIMING)
        else:
            assert record["status"] == "complete", (name, record["reason"])
            assert record["metrics"]["samples_per_s"]["value"] > 0
    assert not done.leftovers()
    return records[culprit]


def log_named(done):
    path = re.search(r"\(log: ([^)]+)\)", done.err)
    assert path, done.err
    return Path(path[1]).read_text()


def test_a_rank_that_raises_is_named_with_its_traceback_and_the_sweep_goes_on(parbench):  # P1
    done = parbench(*THREE, fault="rank=1,step=3,kind=raise,strategy=ddp")
    assert done.code == 4
    failure = failed_alone(done, "failed")["failure"]
    assert "rank 1/2 step 3 ZeroDivisionError: injected by PARBENCH_FAULT" in done.err
    assert "Traceback (most recent call last)" in log_named(done)
    assert "ZeroDivisionError" in log_named(done)
    assert (failure["rank"], failure["step"], failure["kind"]) == (1, 3, "exception")
    assert len(failure["followed"]) == 1
    assert failure["followed"][0].startswith("rank 0 ")


def test_the_line_that_names_a_rank_is_one_line_however_narrow_the_terminal(parbench):  # P1
    done = parbench(*SHORT, "-s", "ddp", fault="rank=1,step=3,kind=raise", columns="60")
    (line,) = [one for one in done.err.splitlines() if "ZeroDivisionError" in one]
    assert line.endswith("log/rank1.log)")


@pytest.mark.parametrize(
    ("kind", "says", "log"),
    [
        ("exit", "rank 1/2 step 3 ended with exit code 17", None),
        ("segv", "rank 1/2 step 3 was ended by signal 11 (SIGSEGV)", "Fatal Python error: Segmentation fault"),
        ("kill", "rank 1/2 step 3 was ended by signal 9 (SIGKILL) – often the kernel's out-of-memory killer", None),
    ],
)
def test_a_rank_that_dies_without_a_word_is_named_with_how_it_ended(parbench, kind, says, log):  # P2
    done = parbench(*SHORT, "-s", "ddp", fault=f"rank=1,step=3,kind={kind}")
    assert done.code == 4
    assert says in done.err
    assert done.records["ddp"]["status"] == "failed"
    told = log_named(done)
    assert log in told if log else "Traceback" not in told
    assert not done.leftovers()


def test_a_rank_killed_from_outside_is_named_with_its_peak_memory(parbench, tmp_path):  # P3
    note = tmp_path / "pid"
    plugin = strategy(
        tmp_path,
        "tells_its_pid",
        before=f"pathlib.Path({str(note)!r}).write_text(str(os.getpid())) if self.steps == 10 and ctx.rank else 0",
    )
    killed_s = []

    def kill():
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        os.kill(int(note.read_text()), signal.SIGKILL)
        killed_s.append(time.monotonic())

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    done = parbench(*SHORT, "--plugin", plugin, "-s", "tells_its_pid", "--set", "steps=1000000")
    killer.join()
    assert time.monotonic() - killed_s[0] < 10
    assert done.code == 4
    peak = re.search(  # the kill may come between two rounds, where no step is being taken
        r"rank 1/2 (?:step \d+ )?was ended by signal 9 \(SIGKILL\) – often the kernel's out-of-memory killer; "
        r"peak RSS of this rank was (\d+) MiB",
        done.err,
    )
    assert peak, done.err
    assert 20 < int(peak[1]) < 20000
    assert not done.leftovers()


def test_memory_that_runs_out_is_a_result_of_its_own_and_the_sweep_goes_on(parbench):  # P4
    done = parbench(*THREE, fault="rank=0,step=2,kind=oom,strategy=ddp")
    assert done.code == 4
    record = failed_alone(done, "oom")
    assert record["failure"]["kind"] == "oom"
    assert "rank 0/2 step 2 MemoryError" in done.err


def test_a_rank_that_hangs_is_named_with_stacks_and_everybodys_place(parbench):  # P6
    done = parbench(*THREE, "--timeout", 2, fault="rank=1,step=3,kind=hang,strategy=ddp")
    assert done.code == 5
    failure = failed_alone(done, "timeout")["failure"]
    assert "rank 1/2 step 3 made no progress for 2 s: rank 1 is behind the others" in done.err
    assert failure["kind"] == "hang"
    place = r"rank (\d): in steps step 3; collectives issued per group: ([\d, ]+)"
    ranks, issued = zip(*(re.fullmatch(place, line).groups() for line in failure["followed"]), strict=True)
    assert ranks == ("0", "1")
    first, second = ([int(n) for n in one.split(",")] for one in issued)
    assert first > second
    stacks = log_named(done)
    assert "most recent call first" in stacks
    assert "in strike" in stacks


@pytest.mark.parametrize(
    ("stuck", "why"),
    [
        (
            "ctypes.PyDLL(None).sleep(1000) if ctx.rank == 1 and self.steps == 4 else None",
            "holds the interpreter's lock",
        ),
        ("os.kill(os.getpid(), 19) if ctx.rank == 1 and self.steps == 4 else None", "is stopped by a signal"),
    ],
)
def test_a_rank_whose_heartbeat_is_silent_is_named(parbench, tmp_path, stuck, why):
    plugin = strategy(tmp_path, "silent", before=stuck)
    done = parbench(*SHORT, "--plugin", plugin, "-s", "silent", "--timeout", 2)
    assert done.code == 5, why
    assert "rank 1 is behind the others" in done.err
    assert not done.leftovers()


def test_a_lone_rank_that_hangs_is_not_said_to_be_behind_others(parbench):
    done = parbench(
        *SHORT, "-s", "single", "-s", "ddp", "--timeout", 2, fault="rank=0,step=2,kind=hang,strategy=single"
    )
    assert done.code == 5
    assert "only rank 0 has not answered" in done.err
    assert done.records["ddp"]["status"] == "complete"


def test_two_runs_at_once_succeed_though_the_usual_port_is_taken(start):  # P9
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        both = [start(*SHORT, "-s", "ddp", out=f"results{k}") for k in range(2)]
        ended = [one.wait() for one in both]
        assert [one.code for one in ended] == [0, 0], ended[0].err


def test_a_failure_after_everything_was_measured_is_a_warning(parbench, tmp_path):  # P18
    plugin = strategy(tmp_path, "ends_badly", close="1 / 0 if self.steps > 3 and self.ctx.rank == 1 else None")
    done = parbench(*SHORT, "--plugin", plugin, "-s", "ends_badly")
    assert done.code == 0, done.err
    record = done.records["ends_badly"]
    assert record["status"] == "complete"
    assert record["metrics"]["samples_per_s"]["value"] > 0
    warning = next(w for w in record["warnings"] if w["code"] == "teardown_failed")
    assert "ZeroDivisionError" in warning["message"]
    assert "ZeroDivisionError" in (done.folder(record) / "log" / "rank1.log").read_text()
    assert not done.leftovers()


def test_a_plug_in_that_fails_in_the_ranks_only_is_named_with_its_log(parbench, tmp_path):
    plugin = strategy(tmp_path, "not_there", top="if multiprocessing.parent_process() is not None: 1 / 0")
    done = parbench(*SHORT, "--plugin", plugin, "-s", "not_there", "-s", "ddp")
    assert done.code == 4
    assert done.records["ddp"]["status"] == "complete"
    failure = done.records["not_there"]["failure"]
    assert "ZeroDivisionError" in failure["message"]
    assert "ZeroDivisionError" in log_named(done)


def test_end_of_file_in_a_plug_in_is_not_taken_for_the_launchers_end(parbench, tmp_path):
    plugin = strategy(tmp_path, "reads_on", before="if self.steps == 4: raise EOFError('no data left')")
    done = parbench(*SHORT, "--plugin", plugin, "-s", "reads_on")
    assert done.code == 4
    assert "EOFError: no data left" in done.err


def test_a_loss_that_is_not_a_number_keeps_the_throughput_and_loses_the_rank(parbench):  # N1
    done = parbench(*THREE, fault="rank=1,step=3,kind=nan,strategy=ddp")
    assert done.code == 0
    record = done.records["ddp"]
    assert record["numerics"] == "nonfinite at step 3"
    assert record["metrics"]["samples_per_s"]["value"] > 0
    assert record["metrics"]["final_loss"]["value"] is None
    assert "nonfinite" in record["metrics"]["final_loss"]["reason"]
    assert "nonfinite_loss" in [w["code"] for w in record["warnings"]]
    assert rankable(done) == {"single": True, "ddp": False, "no_overlap": True}


def rankable(done):
    return {cell["strategy"]: cell["rankable"] for cell in done.document["cells"]}


def test_a_slow_first_step_is_left_out_and_told(parbench, tmp_path):  # N6
    plugin = strategy(tmp_path, "slow_start", before="time.sleep(1.0 if self.steps == 0 else 0)")
    done = parbench(*SHORT, "--plugin", plugin, "-s", "slow_start")
    assert done.code == 0
    record = done.records["slow_start"]
    assert record["warm_up"]["first_step_s"] > 1
    assert record["metrics"]["step_time_s"]["value"] < 0.5
    assert "slow_first_step" in [w["code"] for w in record["warnings"]]


def test_steps_drain_and_wall_time_add_up_and_a_slow_rank_shows(parbench, tmp_path):  # N7
    plugin = strategy(tmp_path, "drains", before="time.sleep(0.02)", drain="time.sleep(0.1)")
    fault = "rank=1,step=0,kind=slow,factor=4"
    done = parbench(*SHORT, "--plugin", plugin, "-s", "drains", fault=fault)
    assert done.code == 0
    record = done.records["drains"]
    assert "timing_does_not_add_up" not in [w["code"] for w in record["warnings"]]
    timed = [s for s in done.steps(record) if s["phase"] == "timed"]
    for number, one in enumerate(record["rounds"]):
        assert one["drain_s"] >= 0.1
        for rank, wall_s in enumerate(one["rank_wall_s"]):
            spent_s = sum(s["seconds"] for s in timed if (s["round"], s["rank"]) == (number, rank))
            assert spent_s + one["drain_s"] == pytest.approx(wall_s, rel=0.02, abs=0.005)
    assert sum(r["samples"] for r in record["rounds"]) == 6 * 64
    whole_s = sum(r["wall_s"] for r in record["rounds"])
    assert record["metrics"]["samples_per_s"]["value"] == pytest.approx(6 * 64 / whole_s)
    slow = [s["seconds"] for s in timed if s["rank"] == 1]
    assert min(slow) > 0.06


@pytest.mark.parametrize(
    "text", ["rank=1", "rank=1,step=x,kind=raise", "rank=1,step=1,kind=explode", "rank=1,step=1,kind=raise,more=2", "?"]
)
def test_an_unknown_fault_is_refused(text):
    with pytest.raises(UsageError, match="PARBENCH_FAULT"):
        parse_fault(text)


def test_a_fault_acts_where_it_says():
    once = parse_fault("rank=1, step=3, kind=raise, strategy=ddp")
    assert [step for step in range(9) if once.acts(1, step, "ddp")] == [3]
    assert not once.acts(0, 3, "ddp")
    assert not once.acts(1, 3, "single")
    long = parse_fault("rank=0,step=2,kind=slow,until=4")
    assert [step for step in range(9) if long.acts(0, step, "x")] == [2, 3, 4]
    assert parse_fault(" ") is None


def test_signals_have_names_that_readers_know():
    from parbench.launch.failure import describe_exit

    assert describe_exit(-signal.SIGSEGV, None) == ("signal", "was ended by signal 11 (SIGSEGV)")
    assert describe_exit(-signal.SIGKILL, 3 * 2**20)[1].endswith("peak RSS of this rank was 3 MiB")
    assert describe_exit(-99, None)[1] == "was ended by signal 99 (unknown)"
    assert describe_exit(0, None) == ("exit", "ended with exit code 0")
