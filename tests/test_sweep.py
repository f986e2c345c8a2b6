"""Sweeps: resuming what was cut short, the files left behind, what is judged when."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

import parbench
from parbench import RunSpec, StoreError, UsageError, sweepfile
from parbench.launch.stopping import StopRequest
from parbench.registry import Registry
from parbench.suite import of_specs
from parbench.sweep import run_sweep

SHORT = {"workload": "digits", "size": "smoke", "steps": 6, "steps_per_round": 2, "warmup": 1, "parity_steps": 1}


def spec(strategy="single", **changes):
    return RunSpec(strategy=strategy, **SHORT | changes)


def sweep(specs, out, listener=None, fresh=False):
    told = listener or (lambda event: None)
    return run_sweep(of_specs(tuple(specs)), out=Path(out), registry=Registry(), fresh=fresh, listener=told)


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
    assert document["schema"] == {"name": "parbench.runs", "major": 1, "minor": 3}
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


# ---- what is judged when


def test_losses_are_judged_after_the_same_number_of_steps_however_long_the_warm_up(tmp_path):
    short, long = (sweep([spec("single", warmup=w, steps=6)], tmp_path).records[0] for w in (2, 4))
    assert long.warm_up.steps + 6 == short.warm_up.steps + 8
    for record in (short, long):
        assert record.metrics["final_loss"].source.startswith("mean over training steps 4 to 5")
        assert record.metrics["held_out_accuracy"].source.endswith("after 6 training steps")
    assert short.metrics["final_loss"].value == long.metrics["final_loss"].value
    assert short.metrics["held_out_loss"].value == long.metrics["held_out_loss"].value


def test_a_fault_in_a_rank_that_no_case_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PARBENCH_FAULT", "rank=7,step=1,kind=raise")
    with pytest.raises(UsageError, match="rank 7, but no case has more than 2 ranks"):
        sweep([spec("ddp")], tmp_path)


def test_world_sizes_are_measured_together(tmp_path):
    """Each with the reference in the same launch; ranks that a case does not use wait."""
    records = sweep([spec("single", world_size=1), spec("ddp"), spec("ddp", world_size=3)], tmp_path).records
    assert [r.launch["ranks"] for r in records] == [3, 3, 3]
    assert [len(r.rounds[0].rank_wall_s) for r in records] == [1, 2, 3]
    assert all(r.rankable for r in records)


def test_a_case_that_failed_is_tried_again_when_its_sweep_goes_on(tmp_path, monkeypatch):
    specs = [spec("single", seed=1), spec("single", seed=2), spec("single", seed=3)]
    monkeypatch.setenv("PARBENCH_FAULT", "rank=0,step=2,kind=raise")
    first = sweep(specs[:1] + specs[1:], tmp_path, interrupted_after(1))
    assert [r.status for r in first.records] == ["failed", "interrupted"]
    second = sweep(specs, tmp_path)
    assert [r.status for r in second.records] == ["failed"] * 3, "with the fault, nothing is taken over"
    assert second.exit_code == 4
    monkeypatch.setenv("PARBENCH_FAULT", "")
    assert sweep(specs, tmp_path).exit_code == 0, "without it, it is another sweep"


def test_what_is_taken_over_is_told(tmp_path):
    specs = [spec("single", seed=1), spec("single", seed=2)]
    sweep(specs, tmp_path, interrupted_after(1))
    assert "1 of 2 cases are taken over from a sweep cut short" in sweep(specs, tmp_path).notes


def test_more_ranks_than_memory_holds_are_refused(tmp_path):
    with pytest.raises(UsageError, match="65536 ranks take more memory than is free here; at most"):
        sweep([spec("ddp", world_size=65536)], tmp_path)


# ---- refusals


def test_a_folder_that_cannot_be_written_is_found_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        sweep([spec("single")], tmp_path / "file")


def test_a_batch_larger_than_the_data_is_refused_before_ranks_start(tmp_path):
    with pytest.raises(UsageError, match="allowed: 1 to 1438"):  # 1797 digits, of which a fifth, 359, is held out
        sweep([spec("ddp", global_batch_size=5000)], tmp_path)
    assert not list(tmp_path.iterdir())


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


def test_a_sweep_that_another_process_is_at_work_on_is_not_taken_up(tmp_path):
    specs = [spec("single", seed=1), spec("single", seed=2)]
    first = sweep(specs, tmp_path, interrupted_after(1))
    (path,) = first.path.glob("sweep-*.json")
    file = msgspec.json.decode(path.read_bytes(), type=sweepfile.SweepFile)
    assert file.status == "interrupted"
    alive = msgspec.structs.replace(file, status="running")  # its owner is this very process
    path.write_bytes(sweepfile.encode(alive))
    assert sweepfile.unfinished(first.path, alive) is None
    gone = msgspec.structs.replace(alive, owner=msgspec.structs.replace(alive.owner, began_s=alive.owner.began_s - 100))
    path.write_bytes(sweepfile.encode(gone))
    assert sweepfile.unfinished(first.path, alive) == gone
    elsewhere = msgspec.structs.replace(gone, owner=msgspec.structs.replace(gone.owner, host="another"))
    path.write_bytes(sweepfile.encode(elsewhere))
    assert sweepfile.unfinished(first.path, alive) is None, "nothing is known of another host's processes"
