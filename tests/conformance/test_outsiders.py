"""What others get from parbench.conformance: laws for plug-ins of their own, which bite on workloads and probes too."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from parbench.conformance import check_probe, check_workload
from parbench.registry import Registry
from plugin_sources import dropping, strategy

PLANTED = Path(__file__).parent / "plugins"
RUNS = "runs, or says why not"
SAME = "same seed, same batches and weights"
ALONE = "leaves the global random state alone"
BLOCKS = "blocks are disjoint and complete"
UNITS = "units per sample are right"
META = "every size builds on the meta device"
SHARDINGS = "every sharding pattern matches a parameter"
WAITS = "nothing waits inside a step"
DESCRIBED = "says unit and source of every series"
STOP = "stop without start is an error"

# fault -> the one law it breaks
WORKLOADS = {
    "none": None,
    "other batches": SAME,
    "other weights": SAME,
    "global RNG": ALONE,
    "global RNG of Python": ALONE,
    "call order": "batches come in any order",
    "mean loss": "the loss is a sum over samples",
    "empty pattern": SHARDINGS,
    "unknown cut": SHARDINGS,
    "block missing": BLOCKS,
    "activation missing": "blocks applied in order are the model",
    "blocks overlap": BLOCKS,
    "block twice": BLOCKS,
    "no such block": BLOCKS,
    "wrong unit": UNITS,
    "wrong units per sample": UNITS,
    "does not learn": "learns",
    "wrong count": "has the published number of parameters",
    "parameter on the CPU": META,
    "buffer on the CPU": META,
    "empty share": "an empty share has gradients of zero",
    "raises on meta": META,
    "raises": RUNS,
    "no sentence": RUNS,
}
PROBES = {
    "none": None,
    "samples in a thread": None,
    "stops without start": STOP,
    "stops twice": STOP,
    "one too many": "series have one value per step",
    "sleeps": WAITS,
    "sleeps unseen": WAITS,
    "reads a tensor": WAITS,
    "converts a tensor": WAITS,
    "communicates": WAITS,
    "communicates by itself": WAITS,
    "no unit": DESCRIBED,
    "no source": DESCRIBED,
    "empty without reason": DESCRIBED,
    "raises": RUNS,
    "no sentence": RUNS,
}


@pytest.mark.parametrize("fault", WORKLOADS)
def test_a_fault_of_a_workload_is_caught_by_its_law(fault):
    registry = Registry([PLANTED / "planted_workload.py"])
    verdict = check_workload(f"planted_workload(fault='{fault}')", registry=registry)
    assert [finding.law for finding in verdict.broken] == [WORKLOADS[fault]][: fault != "none"], verdict.broken


@pytest.mark.parametrize("fault", PROBES)
def test_a_fault_of_a_probe_is_caught_by_its_law(fault):
    verdict = check_probe(f"planted_probe(fault='{fault}')", plugins=[PLANTED / "planted_probe.py"])
    assert [finding.law for finding in verdict.broken] == [one for one in [PROBES[fault]] if one], verdict.broken


def test_every_planted_fault_is_in_its_table():
    for name, table in (("workload", WORKLOADS), ("probe", PROBES)):
        cls = Registry([PLANTED / f"planted_{name}.py"]).load(name, f"planted_{name}")
        assert set(sys.modules[cls.__module__].FAULTS) == set(table)


def test_checking_a_workload_leaves_the_threads_of_its_caller():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_workload("planted_workload", plugins=[PLANTED / "planted_workload.py"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_watching_a_probe_leaves_time_and_tensors_as_they_were():
    before = [sys.modules["time"].sleep, *map(torch.Tensor.__dict__.get, ("item", "__float__", "__bool__"))]
    check_probe("planted_probe(fault=sleeps)", plugins=[PLANTED / "planted_probe.py"])
    assert [sys.modules["time"].sleep, *map(torch.Tensor.__dict__.get, ("item", "__float__", "__bool__"))] == before
    assert float(torch.tensor(2.5)) == 2.5


OUTSIDE = """
from pathlib import Path

from parbench.conformance import check_probe, check_strategy, check_workload

HERE = Path(__file__).parent


def test_my_strategy():
    verdict = check_strategy("sums", plugins=[HERE / "sums.py"])
    assert [f.law for f in verdict.broken if f.law.startswith("agrees")], verdict.findings


def test_my_workload():
    assert not check_workload("dropping", plugins=[str(HERE / "dropping.py")]).passed


def test_my_probe():
    verdict = check_probe("planted_probe", plugins=[HERE / "planted_probe.py"])
    assert verdict.passed, verdict.broken
    assert verdict.kind == "probe"


def test_my_broken_probe():
    verdict = check_probe("planted_probe(fault=sleeps)", plugins=[HERE / "planted_probe.py"])
    assert verdict.passed, verdict.broken
"""


def test_an_outsider_tests_plugins_with_a_few_lines(tmp_path):
    strategy(tmp_path, "sums", exchange="[ctx.comm.sum(p.grad) for p in parameters]")
    dropping(tmp_path)
    (tmp_path / "planted_probe.py").write_bytes((PLANTED / "planted_probe.py").read_bytes())
    (tmp_path / "test_mine.py").write_text(OUTSIDE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    assert "test_my_broken_probe" in done.stdout
    assert "calls time.sleep" in done.stdout
