"""The GPU check's twin on a CPU: the script is sound before a GPU is borrowed for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from amounts import amount
from parbench import support
from parbench.api import Comm
from parbench.registry import Registry

SCRIPT = Path(__file__).parent / "gpu_check.py"


def check(tmp_path, *arguments):
    command = [sys.executable, SCRIPT, "--device", "cpu", "-o", tmp_path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.usefixtures("no_orphans")
def test_each_strategy_runs_alone_and_as_two_ranks_and_the_table_comes_last(tmp_path):
    code, lines, errors = check(tmp_path, "-s", "single", "-s", "hsdp", "--steps", "4")
    assert code == 0, errors
    assert "0 bad" in lines[-1]
    # single has one rank only; hsdp wants two, so it says why it cannot be alone.
    assert sum("single" in line and "agrees" in line for line in lines) == 2
    assert sum("hsdp" in line and "replicas x shards" in line for line in lines) == 2
    assert sum("hsdp" in line and "agrees" in line for line in lines) == 2
    stored = [json.loads(path.read_bytes())["status"] for path in tmp_path.rglob("record.json")]
    assert sorted(stored) == ["complete"] * 4 + ["unsupported"] * 2


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("no_orphans")
def test_every_strategy_passes_the_twin(tmp_path):
    some = [word for name in Registry().names("strategy")[::3] for word in ("-s", name)]
    code, lines, errors = check(tmp_path, *amount([], in_ci=some))
    assert code == 0, "\n".join(lines[-60:]) + errors[-2000:]


def test_collectives_that_a_backend_refuses_are_named(monkeypatch):
    def refused(comm, tensor):
        raise RuntimeError("unsupported device type cuda\nstack")

    trials = dict.fromkeys(support._TRIALS, lambda comm, x: x) | {"send": refused}
    monkeypatch.setattr(support, "_TRIALS", trials)
    alone, cpu = Comm(None, 0, 1), torch.device("cpu")
    assert support.problem("send", alone, cpu) == "unsupported device type cuda"
    assert [support.problem(op, alone, cpu) for op in ("all_reduce", "an op of tomorrow")] == [None, None]
