"""Sweeps: resuming what was cut short, grouping by memory, the files left behind, repeating a record."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

import parbench
from parbench import RunSpec, StoreError, UsageError, sweepfile
from parbench.cases import Case
from parbench.grouping import grouped
from parbench.launch.stopping import StopRequest
from parbench.registry import Registry
from parbench.spec import spec_id
from parbench.suite import of_specs
from parbench.sweep import run_sweep

SHORT = {"workload": "digits", "size": "smoke", "steps": 6, "steps_per_round": 2, "warmup": 1, "parity_steps": 1}


def spec(strategy="single", **changes):
    return RunSpec(strategy=strategy, **SHORT | changes)


def sweep(specs, out, listener=None, fresh=False):
    told = listener or (lambda event: None)
    return run_sweep(of_specs(tuple(specs)), out=Path(out), registry=Registry(), fresh=fresh, listener=told)


# ---- grouping: pure


def cases(*specs, repeats=1):
    return [
        Case(cell=k, repeat=repeat, spec=one, spec_id=spec_id(one))
        for repeat in range(repeats)
        for k, one in enumerate(specs)
    ]


def strategies(groups):
    return [[case.spec.strategy for case in group.cases] for group in groups]


def nothing(spec):
    return 0


def test_strategies_on_one_job_are_measured_together():
    many = cases(spec("single", world_size=1), spec("ddp"), spec("no_overlap"))
    assert strategies(grouped(many, nothing, 1)) == [["single", "ddp", "no_overlap"]]


def test_what_differs_in_more_than_the_strategy_is_launched_apart():
    many = cases(spec("ddp"), spec("ddp", seed=1), spec("ddp", steps=8))
    assert strategies(grouped(many, nothing, 1)) == [["ddp"], ["ddp"], ["ddp"]]


def test_one_process_joins_the_largest_group_it_fits():
    many = cases(spec("single", world_size=1), spec("ddp"), spec("ddp", world_size=4))
    assert strategies(grouped(many, nothing, 1)) == [["single", "ddp"], ["ddp"]]
    assert grouped(many, nothing, 1)[0].cases[1].spec.world_size == 4


def test_every_other_repeat_runs_backwards():
    many = cases(spec("ddp"), spec("no_overlap"), repeats=3)
    assert strategies(grouped(many, nothing, 1)) == [
        ["ddp", "no_overlap"],
        ["no_overlap", "ddp"],
        ["ddp", "no_overlap"],
    ]


def test_what_does_not_fit_into_memory_together_is_launched_alone_in_abba_order():
    many = cases(spec("ddp"), spec("no_overlap"), repeats=2)
    # A model of 1 GiB: two variants on two ranks need 4 x 8 copies and parity 2 x 10 more, 52 GiB in all.
    groups = grouped(many, lambda one: 2**30, int(52 * 2**30 / 0.6) - 2**20)
    assert strategies(groups) == [["ddp"], ["no_overlap"], ["no_overlap"], ["ddp"]]
    assert "launched alone" in groups[0].because
    together = grouped(many, lambda one: 2**30, int(52 * 2**30 / 0.6) + 2**20)
    assert strategies(together) == [["ddp", "no_overlap"], ["no_overlap", "ddp"]]


# ---- files


def test_what_a_sweep_leaves_behind(tmp_path):
    outcome = sweep([spec("single"), spec("ddp")], tmp_path)
    assert outcome.exit_code == 0
    assert outcome.path == tmp_path / "python"
    (file,) = outcome.path.glob("sweep-*.json")
    assert msgspec.json.decode(file.read_bytes(), type=sweepfile.SweepFile).status == "complete"
    runs = sorted(folder.name for folder in outcome.path.iterdir() if folder.is_dir())
    assert runs == sorted(record.id for record in outcome.records)
    for name in runs:
        found = {str(path.relative_to(outcome.path / name)) for path in (outcome.path / name).rglob("*")}
        assert {"record.json", "steps.parquet", "log", "log/rank0.log"} <= found


def test_the_document_is_what_the_design_says(tmp_path):
    outcome = sweep([spec("ddp")], tmp_path)
    document = json.loads(outcome.document)
    assert document["schema"] == {"name": "parbench.runs", "major": 1, "minor": 0}
    (run,) = document["runs"]
    wanted = ("id", "status", "reason", "spec", "environment", "metrics", "agreement", "breakdown", "warnings")
    assert set(wanted) <= run.keys()
    assert run["spec"]["strategy"] == "ddp"
    assert run["spec"]["world_size"] == 2, "every field is spelled out, defaults too"
    assert run["agreement"].keys() >= {"declared", "passed", "loss_difference", "parameter_difference", "steps"}
    metrics = run["metrics"]
    for name in ("step_time_s", "samples_per_s", "samples_per_s_per_device", "startup_s", "final_loss"):
        assert metrics[name]["value"] > 0, name
        assert metrics[name]["unit"], name
        assert metrics[name]["source"], name
    assert metrics["tokens_per_s"]["value"] is None
    assert "samples, not tokens" in metrics["tokens_per_s"]["reason"]
    # Sums, not rates of rates: 6 steps of 64 samples.
    record = outcome.records[0]
    wall_s = sum(r.wall_s for r in record.rounds)
    assert record.metrics["samples_per_s"].value == pytest.approx(6 * 64 / wall_s)
    assert record.metrics["samples_per_s_per_device"].value == pytest.approx(3 * 64 / wall_s)


# ---- resuming


def interrupted_after(cells):
    """A listener that asks to stop, as Ctrl-C does, once so many cases have ended."""
    ended = []

    def listen(event):
        if event.kind == "case":
            ended.append(event)
            if len(ended) == cells:
                signal.raise_signal(signal.SIGINT)

    return listen


def test_a_sweep_cut_short_goes_on_where_it_stopped(tmp_path):
    specs = [spec("single", seed=1), spec("single", seed=2), spec("single", seed=3)]
    first = sweep(specs, tmp_path, interrupted_after(1))
    assert first.exit_code == 130
    assert [r.status for r in first.records] == ["complete", "interrupted"]
    told = []
    second = sweep(specs, tmp_path, told.append)
    assert second.exit_code == 0
    assert [r.status for r in second.records] == ["complete"] * 3
    assert second.records[0].id == first.records[0].id, "the finished cell is taken over"
    assert [event.kind for event in told].count("skip") == 1
    third = sweep(specs, tmp_path)
    assert not {r.id for r in third.records} & {r.id for r in second.records}, "a complete sweep is measured anew"


def test_fresh_ignores_what_was_cut_short(tmp_path):
    specs = [spec("single", seed=1), spec("single", seed=2)]
    first = sweep(specs, tmp_path, interrupted_after(1))
    second = sweep(specs, tmp_path, fresh=True)
    assert not {r.id for r in first.records} & {r.id for r in second.records}


def test_another_sweep_does_not_take_over_what_was_cut_short(tmp_path):
    first = sweep([spec("single", seed=1), spec("single", seed=2)], tmp_path, interrupted_after(1))
    second = sweep([spec("single", seed=1), spec("single", seed=3)], tmp_path)
    assert not {r.id for r in first.records} & {r.id for r in second.records}


def test_an_interrupted_run_is_named_by_the_one_that_takes_it_up(tmp_path):
    specs = [spec("single", steps=40)]

    def listen(event):
        if event.kind == "round":
            signal.raise_signal(signal.SIGINT)

    (cut,) = sweep(specs, tmp_path, listen).records
    assert cut.status == "interrupted"
    assert 0 < sum(r.steps for r in cut.rounds) < 40, "what was measured is kept"
    (whole,) = sweep(specs, tmp_path).records
    assert whole.resumed_from == cut.id
    assert sum(r.steps for r in whole.rounds) == 40, "samples of both are never mixed"


# ---- refusals


def test_a_folder_that_cannot_be_written_is_found_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        sweep([spec("single")], tmp_path / "file")


def test_python_checks_what_it_is_given(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'ddp'"):
        parbench.run(spec("dpp"), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_asked_twice_is_now():
    stop = StopRequest()
    assert not stop.asked
    stop.ask(signal.SIGTERM)
    assert stop.asked
    assert not stop.now
    stop.ask(signal.SIGTERM)
    assert stop.now
    assert stop.exit_code == 143
