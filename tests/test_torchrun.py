"""The same command under torchrun: rank 0 leads and reports, the others serve; faults are named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parbench import UsageError
from parbench.launch.elastic import TorchrunSeat
from parbench.suite import from_flags

SHORT = ("run", "digits", "--size", "smoke", "--steps", "6", "--warmup", "1", "--set", "steps_per_round=2")


def torchrun(out, *arguments, fault=""):
    command = [Path(sys.executable).with_name("torchrun"), "--standalone", "--nproc-per-node", "2", "-m", "parbench"]
    environment = os.environ | {"PARBENCH_FAULT": fault}
    done = subprocess.run(
        [*command, *SHORT, *arguments, "-o", out], capture_output=True, text=True, env=environment, timeout=100
    )
    return done.returncode, done.stdout, done.stderr


def test_one_command_two_ranks_one_report(tmp_path):
    code, out, err = torchrun(tmp_path, "-s", "single", "-s", "ddp", "--json")
    assert code == 0, err
    runs = json.loads(out)["runs"]
    assert [(run["spec"]["strategy"], run["status"]) for run in runs] == [("single", "complete"), ("ddp", "complete")]
    assert runs[1]["agreement"]["passed"]
    assert runs[1]["metrics"]["startup_s"]["value"] is None, "torchrun started the ranks, not parbench"
    assert len(list(tmp_path.glob("digits/*/record.json"))) == 2


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        pytest.param("raise", "failed", "rank 1/2 step 3 ZeroDivisionError", marks=pytest.mark.nightly),
        ("hang", "timeout", "rank 1/2 step 3 made no progress for 5 s"),
    ],
)
def test_a_fault_is_named(tmp_path, kind, status, says):
    code, _, err = torchrun(tmp_path, "-s", "ddp", "--timeout", "5", fault=f"rank=1,step=3,kind={kind}")
    assert code != 0, "torchrun's own code: 1 where a rank failed"
    (record,) = [json.loads(path.read_bytes()) for path in tmp_path.glob("digits/*/record.json")]
    assert record["status"] == status, err
    assert record["reason"].startswith(says)


def seat(world_size=2):
    return TorchrunSeat(rank=0, local_rank=0, world_size=world_size)


def test_another_world_size_than_torchruns_is_refused():
    with pytest.raises(UsageError, match="is to run on 4 ranks, torchrun started 2; say -n 2"):
        seat().check(from_flags("digits", {"strategy": ("ddp",), "world_size": (4,)}).specs)


def test_repeats_are_refused():
    with pytest.raises(UsageError, match="start it again"):
        seat().check(from_flags("digits", {"strategy": ("ddp",), "repeats": (3,)}).specs)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK, MASTER_ADDR, MASTER_PORT is not"),
        (
            {"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
            "must be numbers",
        ),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "RANK=2 must be"),
    ],
)
def test_half_an_environment_is_refused(environ, says):
    with pytest.raises(UsageError, match=says):
        TorchrunSeat.here(environ)


def test_no_environment_is_no_seat():
    assert TorchrunSeat.here({}) is None
    assert TorchrunSeat.here({"RANK": "0"}) is None
