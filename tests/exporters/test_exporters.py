"""Exports hold what the records do, as the other tools' own readers read them; hostile names stay where they belong."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parbench.cli import main
from parbench.exporters import mllog, tensorboard, wandb
from parbench.exporters.exported import Exported, exported
from parbench.record import Environment, Metric, RunRecord
from parbench.spec import RunSpec, spec_id
from parbench.store import Problem, Store, find_runs

STEPS = {
    "phase": ["timed"] * 4,
    "round": [0] * 4,
    "rank": [0, 1, 0, 1],
    "step": [5, 5, 6, 6],
    "seconds": [0.1, 0.2, 0.4, 0.3],
    "samples": [64] * 4,
    "loss": [2.0, 3.0, 1.0, None],
}
HOSTILE = '../x\n:::MLLOG {"key": "run_stop"}\u2028'


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    metrics = {
        "step_time_s": Metric(value=0.3, unit="s", better="lower", n=2),
        "mfu": Metric(value=7.0, unit="fraction", better="higher", n=1).suspected("above 100 %"),
        "power_w": Metric.unavailable("W", "lower", "no meter"),
        "held_out_accuracy": Metric(value=0.9, unit="fraction", better="higher", n=1),
    }
    spec = RunSpec(workload="digits", strategy=HOSTILE, world_size=2, global_batch_size=64, seed=3)
    record = RunRecord(
        id="20261130T100000Z-00000001",
        suite="suite",
        status="complete",
        started_at="2026-11-30T10:00:00+00:00",
        spec=spec,
        spec_id=spec_id(spec),
        environment=Environment(fingerprint="machine", software="s", facts={"cores": 2, "gpu": None}),
        metrics=metrics,
    )
    Store(tmp_path / "results").write(record, steps=STEPS, files={})
    return tmp_path / "results"


@pytest.fixture
def run(stored: Path) -> Exported:
    (found,) = exported(find_runs(stored)[0], [])
    return found


def test_series_are_of_timed_steps_and_samples_that_cannot_be_read_are_a_sentence(tmp_path: Path, stored: Path) -> None:
    (before,) = find_runs(stored)[0]
    warm = {name: [*values[:2], *values] for name, values in STEPS.items()}
    warm["phase"] = ["warmup"] * 2 + STEPS["phase"]
    warm["step"] = [4, 4, *STEPS["step"]]
    Store(tmp_path / "other").write(before.record, steps=warm, files={})
    (run,) = find_runs(tmp_path / "other")[0]
    (found,) = exported([run], [])
    assert [point[0] for point in found.points] == [5, 6]
    (run.folder / "steps.parquet").write_bytes(b"PAR1")
    problems: list[Problem] = []
    (found,) = exported([run], problems)
    assert found.points == ()
    assert "samples cannot be read" in problems[0].sentence


def test_what_is_suspect_or_was_not_measured_is_left_out_with_its_reason(run: Exported) -> None:
    assert run.metrics == {"step_time_s": 0.3, "held_out_accuracy": 0.9}
    assert run.left_out == {"mfu": "above 100 %", "power_w": "no meter"}
    assert run.settings["environment.cores"] == 2
    assert "environment.gpu" not in run.settings


def test_steps_are_those_of_the_slowest_rank_and_the_mean_loss(run: Exported) -> None:
    assert [(s, d, loss) for s, _, d, loss in run.points] == [(5, 0.2, 2.5), (6, 0.4, 1.0)]
    assert [passed for _, passed, _, _ in run.points] == pytest.approx([0.2, 0.6])


def test_lines_of_mlperf_are_whole_and_in_order(run: Exported, tmp_path: Path) -> None:
    text = mllog.write(run, tmp_path).read_text()
    found = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    assert len(text.splitlines()) == len(text.split("\n")) - 1
    keys = [one["key"] for one in found]
    assert keys.count("run_stop") == keys.count("run_start") == 1
    assert keys.index("run_start") < keys.index("tracked_stats") < keys.index("run_stop")
    assert [one["time_ms"] for one in found] == sorted(one["time_ms"] for one in found)
    assert found[0]["time_ms"] == 1796032800000  # 2026-11-30 10:00 UTC
    values = {one["key"]: one["value"] for one in found}
    assert (values["global_batch_size"], values["seed"], values["eval_accuracy"]) == (64, 3, 0.9)
    assert found[-1]["metadata"]["status"] == "success"


def test_mlperf_logging_parses_every_line(run: Exported, tmp_path: Path) -> None:
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser.ruleset_500", reason="mlperf-logging")
    lines, errors = parser.parse_file(str(mllog.write(run, tmp_path)))
    assert errors == []
    assert [one.key for one in lines].count("tracked_stats") == 3  # two steps and the end


def test_tensorboard_reads_scalars_back(run: Exported, tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader", reason="tensorboard")
    tensorboard.write(run, tmp_path)
    folder = tensorboard.write(run, tmp_path)  # again: not beside the former
    assert folder == tmp_path / "20261130T100000Z-00000001"
    (file,) = folder.iterdir()
    seen = {}
    for event in loader.LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            seen[value.tag, event.step] = value.simple_value
    assert seen["step/loss", 5] == 2.5
    assert seen["step/step_time_s", 6] == pytest.approx(0.4)
    assert seen["metric/held_out_accuracy", 6] == pytest.approx(0.9)


@pytest.mark.filterwarnings("ignore")  # of wandb's own
def test_wandb_writes_offline_and_asks_nobody(run: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb")

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("an offline run looks a host up")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    place = wandb.write(run, tmp_path)
    assert place.is_relative_to(tmp_path / "wandb")
    assert place.name.startswith("offline-run-")
    (data,) = place.glob("run-*.wandb")
    content = data.read_bytes()
    assert b"held_out_accuracy" in content
    assert b"digits" in content


@pytest.mark.parametrize(("module", "extra"), [(tensorboard, "tensorboard"), (wandb, "wandb")])
def test_without_the_tool_the_line_that_installs_it_is_said(
    run: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, extra: str
) -> None:
    from parbench.errors import MissingError

    for name in ("tensorboard.compat.proto.event_pb2", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    write: Callable[[Exported, Path], Path] = module.write  # type: ignore[attr-defined]
    with pytest.raises(MissingError, match=rf"pip install 'parbench\[{extra}\]'"):
        write(run, tmp_path)


def test_the_command_says_where_and_what_is_left_out(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["parbench", "export", str(stored), "--to", "mllog"])
    try:
        assert main() == 0
    except SystemExit as leaving:
        assert not leaving.code
    out, err = capsys.readouterr()
    assert out.strip() == str(stored / "export" / "mllog" / "20261130T100000Z-00000001.log")
    assert "2 metrics are left out" in err
