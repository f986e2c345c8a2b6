"""Frames are tidy tables of what is stored, with the same columns and types however much that is."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pandas
import pytest

import parbench
from parbench.errors import UnreadableError, UsageError
from parbench.frames import load
from parbench.record import Chosen, Environment, Metric, RunRecord
from parbench.spec import RunSpec, spec_id
from parbench.store import Store

SPEC = RunSpec(workload="digits", strategy="ddp", global_batch_size=64)
COLUMNS = [
    "run",
    "suite",
    "status",
    "workload",
    "size",
    "strategy",
    "world_size",
    "device",
    "backend",
    "precision",
    "global_batch_size",
    "repeat",
    "metric",
    "value",
    "unit",
    "better",
    "n",
    "ci_low",
    "ci_high",
    "source",
    "quality",
    "reason",
    "agreement_passed",
    "fingerprint",
    "commit",
    "path",
]
STEPS = {
    "phase": ["timed", "timed"],
    "round": [0, 0],
    "rank": [0, 1],
    "step": [5, 5],
    "seconds": [0.5, 0.25],
    "samples": [64, 64],
    "loss": [2.0, None],
}


def a_record(**changes: object) -> RunRecord:
    record = RunRecord(
        id="run1",
        suite="s",
        status="complete",
        started_at="2026-11-30T11:22:33Z",
        spec=SPEC,
        spec_id=spec_id(SPEC),
        environment=Environment(fingerprint="f", software="s", facts={"commit": "abc"}),
        metrics={
            "step_time_s": Metric(value=0.25, unit="s", better="lower", n=20, ci_low=0.2, ci_high=0.3, source="rounds"),
            "mfu": Metric.unavailable("fraction", "higher", "no peak is known"),
        },
        chosen={"device": Chosen(value="cpu", because="no GPU")},
    )
    return msgspec.structs.replace(record, **changes)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    store = Store(tmp_path / "results")
    store.write(a_record(), steps=STEPS, files={})
    store.write(a_record(id="run2", status="oom", reason="8 GiB asked for", metrics={}), steps={}, files={})
    return tmp_path / "results"


def test_a_row_per_run_and_metric(results: Path) -> None:
    frame = load(results)
    assert list(frame.columns) == COLUMNS
    assert list(frame["metric"]) == ["step_time_s", "mfu", "step_time_s"]
    first = frame.iloc[0]
    assert (first["value"], first["ci_low"], first["ci_high"], first["n"], first["unit"]) == (0.25, 0.2, 0.3, 20, "s")
    assert (first["strategy"], first["device"], first["commit"], first["global_batch_size"]) == (
        "ddp",
        "cpu",
        "abc",
        64,
    )
    assert first["path"] == str(results / "s" / "run1")
    assert math.isnan(frame.iloc[1]["value"])
    assert frame.iloc[1]["reason"] == "no peak is known"
    assert frame.attrs["problems"] == []


def test_a_run_that_measured_nothing_has_a_row_that_says_so(results: Path) -> None:
    last = load(results).iloc[2]
    assert (last["run"], last["status"], last["quality"]) == ("run2", "oom", "unavailable")
    assert "8 GiB" in last["reason"]


@pytest.mark.parametrize("below", ["", "s", "s/run1", "s/run1/record.json"])
def test_any_level_can_be_loaded(results: Path, below: str) -> None:
    assert "run1" in set(load(results / below)["run"])
    assert len(load(results / below, steps=True)) == 2
    assert "run1" in set(parbench.load(str(results / below))["run"])


def test_raw_samples(results: Path) -> None:
    frame = load(results, steps=True)
    assert list(frame["seconds"]) == [0.5, 0.25]
    assert list(frame["rank"]) == [0, 1]
    assert set(frame["strategy"]) == {"ddp"}
    assert frame["loss"].isna().tolist() == [False, True]


@pytest.mark.parametrize("steps", [False, True])
def test_an_empty_folder_gives_the_same_columns_and_types(results: Path, tmp_path: Path, steps: bool) -> None:
    (tmp_path / "empty").mkdir()
    full, empty = load(results, steps=steps), load(tmp_path / "empty", steps=steps)
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)
    assert empty.dtypes.astype(str).tolist() == full.dtypes.astype(str).tolist()


def test_unreadable_records_are_counted(results: Path) -> None:
    (results / "s" / "run2" / "record.json").write_bytes(b"{")
    with pytest.warns(UserWarning, match="left out 1 unreadable"):
        frame = load(results)
    assert set(frame["run"]) == {"run1"}
    assert len(frame.attrs["problems"]) == 1
    with pytest.raises(UnreadableError):
        load(results / "s" / "run2")


@pytest.mark.parametrize("data", [b"", b"PAR1 not really PAR1", pickle.dumps({"a": 1})])
def test_unreadable_samples_are_counted(results: Path, data: bytes) -> None:
    (results / "s" / "run1" / "steps.parquet").write_bytes(data)
    with pytest.warns(UserWarning, match=r"steps\.parquet"):
        assert len(load(results, steps=True)) == 0


def test_foreign_samples_are_counted(results: Path) -> None:
    path = results / "s" / "run1" / "steps.parquet"
    for foreign in (pandas.DataFrame({"a": [1]}), pandas.DataFrame({name: ["x"] for name in STEPS})):
        foreign.to_parquet(path)
        with pytest.warns(UserWarning, match=r"steps\.parquet"):
            load(results, steps=True)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load(tmp_path / "missing")


class Bomb:
    """Unpickling this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.target,))


def test_pickles_beside_results_are_never_opened(results: Path, tmp_path: Path) -> None:
    """S1: a pickle in the results is neither opened nor executed, whatever it is called."""
    for name in ("x.pkl", "x.pt", "x.npy", "steps.pkl"):
        (results / "s" / "run1" / name).write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")))
    code = (
        "import sys\nopened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(event + ' ' + str(args[0]))"
        " if event in ('open', 'pickle.find_class') else None)\n"
        "from parbench.frames import load\n"
        "opened.clear(); load(sys.argv[1]); load(sys.argv[1], steps=True)\n"
        "bad = [x for x in opened if x.startswith('pickle') or x.endswith(('.pkl', '.pt', '.npy'))]\n"
        "sys.exit(str(bad) if bad or 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(results)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "pwned").exists()
