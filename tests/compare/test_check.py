"""`parbench check` on runs made by hand: real changes fail, noise and too few runs do not, nothing lost goes unseen."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from compare_cases import a_record, runs

from parbench.checking import check
from parbench.errors import CheckFailed, UsageError
from parbench.history import histories
from parbench.record import Agreement, Metric
from parbench.summary import summary_of

STEADY = [0.0100, 0.0102, 0.0099, 0.0101, 0.0098, 0.0102, 0.0099, 0.0101, 0.0098, 0.0101]


def outcomes(old, new, **more):
    sides = [("old", old), ("new", new)]
    (before,), (after,) = (histories([summary_of(r) for r in side], name) for name, side in sides)
    return {one.metric: one for one in check(before, after, **more).checked}


def later(seconds, **settings):
    return runs(seconds, first=500, **settings)


def times(factor, count=3):
    return [factor * x for x in STEADY[:count]]


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, "passed"), (1.1, "regression"), (1.5, "regression"), (0.9, "improvement"), (2.0, "regression")],
)
def test_three_new_runs_find_what_changed(factor, expected):
    found = outcomes(runs(STEADY), later(times(factor)))
    assert (found["step_time_s"].outcome, found["samples_per_s"].outcome) == (expected, expected)
    assert found["step_time_s"].ratio == pytest.approx(factor, rel=0.02)


@pytest.mark.parametrize(("rate", "expected"), [(1.5, "improvement"), (0.5, "regression")])
def test_one_run_shows_half_the_throughput_and_half_as_much_again(rate, expected):
    found = outcomes(runs(STEADY), later([0.01 / rate]))
    assert found["samples_per_s"].outcome == expected
    assert found["samples_per_s"].ratio == pytest.approx(rate, rel=0.03)


def test_one_run_that_is_a_tenth_slower_may_be_an_outlier():
    found = outcomes(runs(STEADY), later([0.011]))["step_time_s"]
    assert found.outcome == "inconclusive"
    assert "measure 3 or more" in found.why


def test_four_runs_are_no_baseline_for_time_and_enough_for_bytes():
    sent = {"traffic_bytes_per_step": Metric(value=100.0, unit="bytes", better="lower")}
    more = {"traffic_bytes_per_step": Metric(value=101.0, unit="bytes", better="lower")}
    found = outcomes(runs(STEADY[:4], metrics=sent), later(times(1.5), metrics=more))
    assert found["step_time_s"].outcome == "inconclusive"
    assert "has 4 runs, at least 5" in found["step_time_s"].why
    assert found["traffic_bytes_per_step"].outcome == "regression"


def test_an_accuracy_that_never_varied_fails_on_any_change_once_there_are_runs_enough():
    def right(fraction):
        return {"held_out_accuracy": Metric(value=fraction, unit="fraction", better="higher")}

    def outcome(count):
        found = outcomes(runs(STEADY[:count], metrics=right(0.967)), later(times(1), metrics=right(0.964)))
        return found["held_out_accuracy"].outcome

    assert (outcome(5), outcome(4)) == ("regression", "inconclusive")


def test_a_machine_disturbed_half_way_is_inconclusive_not_a_regression():
    disturbed = [
        a_record([0.01] * 5 + [0.03 + 0.001 * k] * 5, sweep=f"new{k}", run_id=f"20261130T12000{k}Z-00000000")
        for k in range(3)
    ]
    slow = [a_record([0.02] * 10, sweep=f"new{k}", run_id=f"20261130T12000{k}Z-00000000") for k in range(3)]
    assert outcomes(runs(STEADY), slow)["step_time_s"].outcome == "regression"
    found = outcomes(runs(STEADY), disturbed)["step_time_s"]
    assert (found.outcome, "while it was measured" in found.why) == ("inconclusive", True)


def test_two_hundred_series_without_a_change_raise_no_alarm_more_than_one():
    """Of 200 series, ten are expected to be apart at the level of 5 % without correction."""
    import random

    draw = random.Random(8)
    names = [f"m{k}_s" for k in range(200)]

    def a_time(value):
        return Metric(value=value, unit="s", better="lower")

    def measured(count, first):
        made = [
            {n: Metric(value=draw.lognormvariate(0, 0.03), unit="s", better="lower") for n in names}
            for _ in range(count)
        ]
        return [runs([0.01], first=first + k, metrics=one)[0] for k, one in enumerate(made)]

    found = outcomes(measured(12, 0), measured(4, 500), metrics=names)
    raw = [one for one in found.values() if one.low is not None and not one.low <= 1 <= one.high]
    assert len(raw) >= 2, "some are apart by chance, or this shows nothing"
    assert [one.metric for one in found.values() if one.outcome in ("regression", "improvement")] == []


def test_a_threshold_below_the_noise_is_refused_with_the_floor():
    with pytest.raises(UsageError, match=r"below the noise of this machine.*give at least that"):
        outcomes(runs(STEADY), later(times(1.1)), thresholds={"": 0.001})
    found = outcomes(runs(STEADY), later(times(1.1)), thresholds={"": 0.2})
    assert found["step_time_s"].outcome == "passed"
    assert (
        outcomes(runs(STEADY), later(times(1.1)), thresholds={"samples_per_s": 0.2})["step_time_s"].outcome
        == "regression"
    )


def test_a_lost_metric_a_suspect_one_and_a_lost_cell_fail():
    had = {"peak_memory_bytes": Metric(value=5.0, unit="bytes", better="lower")}
    lost = {"peak_memory_bytes": Metric.unavailable("bytes", "lower", "no meter")}
    found = outcomes(runs(STEADY, metrics=had), later(times(1), metrics=lost))
    assert (found["peak_memory_bytes"].outcome, found["peak_memory_bytes"].why) == ("missing", "no meter")
    suspect = {"step_time_s": Metric(value=0.01, unit="s", better="lower", quality="suspect", reason="too short")}
    assert outcomes(runs(STEADY), later(times(1), metrics=suspect))["step_time_s"].outcome == "missing"
    two = [*runs(STEADY), *runs(STEADY, strategy="fsdp")]
    assert outcomes(two, later(times(1)))[""].outcome == "missing"


def test_not_a_number_in_a_series_is_missing_and_never_in_a_verdict():
    holes = [
        {"peak_memory_bytes": Metric(value=v, unit="bytes", better="lower")}
        for v in (1.0, float("nan"), 1.01, 1.02, 0.99, 1.0)
    ]
    old = [runs([s], first=k, metrics=m)[0] for k, (s, m) in enumerate(zip(STEADY, holes, strict=False))]
    found = outcomes(old, later(times(1), metrics=holes[0]))["peak_memory_bytes"]
    assert found.runs[0] == 5
    assert found.outcome == "passed"


def test_a_cell_that_fails_now_fails_and_a_flaky_one_is_inconclusive():
    broken = later(times(1)[:1], status="failed")
    assert outcomes(runs(STEADY), broken)[""].outcome == "failed"
    flaky = [*runs(STEADY), *runs([0.01], first=50, status="failed")]
    assert outcomes(flaky, broken)[""].outcome == "inconclusive"
    never = runs(STEADY, status="failed")
    assert "never passed" in outcomes(never, broken)[""].why


def test_a_retried_launch_is_one_run_of_its_case_not_another_series():
    again = [msgspec.structs.replace(r, repeat=1, id=r.id + "b") for r in runs(STEADY)]
    (history,) = histories([summary_of(r) for r in (*runs(STEADY), *again)])
    (cell,) = history.cells.values()
    assert cell.passed == 10
    assert len(cell.series["step_time_s"].values) == 10


def test_what_trains_otherwise_than_it_claims_has_no_time():
    wrong = later(times(1), agreement=Agreement(declared="closely", passed=False, reason="off"))
    assert outcomes(runs(STEADY), wrong)[""].outcome == "failed"


def test_another_backend_and_its_own_baseline_are_refused():
    with pytest.raises(CheckFailed, match="backend gloo in the baseline, nccl now"):
        outcomes(runs(STEADY), later(times(1), backend="nccl"))
    with pytest.raises(UsageError, match="part of the baseline"):
        outcomes(runs(STEADY), runs(STEADY[:2]))


# ---- the command line


def test_record_show_and_check(command, stored, tmp_path):
    old, same, slow = stored("old", runs(STEADY)), stored("same", later(times(1))), stored("slow", later(times(1.5)))
    code, path, _ = command("baseline", "record", old, "-o", tmp_path / "baselines")
    assert code == 0
    assert Path(path.strip()).is_file()
    assert "noise floor" in command("baseline", "show", path.strip())[1]
    assert command("check", same, "--baseline", tmp_path / "baselines")[0] == 0
    code, document, _ = command("check", slow, "--baseline", tmp_path / "baselines", "--json")
    assert code == 1
    assert document["checked"][0]["outcome"] == "regression"
    assert document["schema"]["name"] == "parbench.check"


def test_better_asks_for_a_new_baseline_and_can_be_accepted(command, stored):
    old, fast = stored("old", runs(STEADY)), stored("fast", later(times(0.7)))
    code, out, _ = command("check", fast, "--baseline", old)
    assert code == 1
    assert "record a new baseline" in out
    assert command("check", fast, "--baseline", old, "--accept-better")[0] == 0


def test_junit_and_markdown_are_written(command, stored, tmp_path):
    old, slow = stored("old", runs(STEADY)), stored("slow", later(times(1.5), strategy="ddp"))
    junit, markdown = tmp_path / "check.xml", tmp_path / "summary.md"
    markdown.write_text("before\n")
    command("check", slow, "--baseline", old, "--junit", junit, "--markdown", markdown)
    suite = ET.parse(junit).getroot()
    assert suite.get("failures") == "2"
    assert {case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None} == {
        "step_time_s",
        "samples_per_s",
    }
    text = markdown.read_text()
    assert text.startswith("before\n### check failed: 2 regression")


def test_nothing_measured_is_exit_1_and_nothing_there_exit_2(command, stored, tmp_path):
    old = stored("old", runs(STEADY))
    (tmp_path / "empty").mkdir()
    assert command("check", tmp_path / "empty", "--baseline", old)[0] == 1
    assert command("check", tmp_path / "none", "--baseline", old)[0] == 2
    assert command("check", old, "--baseline", tmp_path / "none")[0] == 2


def test_another_machine_is_exit_1(command, stored):
    old, new = stored("old", runs(STEADY)), stored("new", later(times(1), fingerprint="other"))
    code, _, err = command("check", new, "--baseline", old)
    assert code == 1
    assert "another machine" in err


def test_a_damaged_newest_baseline_is_an_error_not_an_older_one(command, stored, tmp_path):
    old, new, folder = stored("old", runs(STEADY)), stored("new", later(times(1))), tmp_path / "baselines"
    command("baseline", "record", old, "-o", folder)
    path = Path(command("baseline", "record", old, "-o", folder)[1].strip())
    newest = sorted(folder.iterdir())[-1]
    data = newest.read_bytes()
    for damaged in (data[:200], data.replace(b"0.01", b"0.02", 1), b"{}", b'{"a": 1}', b"\x89PNG", b""):
        newest.write_bytes(damaged)
        code, _, err = command("check", new, "--baseline", folder)
        assert code == 7, damaged[:20]
        assert newest.name in err
    newer = data.replace(b'"major": 1', b'"major": 2', 1)
    newest.write_bytes(newer)
    code, _, err = command("check", new, "--baseline", folder)
    assert (code, "upgrade parbench" in err) == (7, True)
    assert path.exists()


def test_a_damaged_record_is_never_left_out_of_a_check(command, stored):
    old, new = stored("old", runs(STEADY)), stored("new", later(times(1)))
    file = sorted(Path(new).rglob("record.json"))[-1]
    file.write_bytes(file.read_bytes()[:50])
    assert command("check", new, "--baseline", old)[0] == 7
    assert command("check", old, "--baseline", new)[0] == 7


def test_strict_fails_where_nothing_can_be_told(command, stored):
    old, new = stored("old", runs(STEADY[:3])), stored("new", later(times(1)))
    assert command("check", new, "--baseline", old)[0] == 0
    assert command("check", new, "--baseline", old, "--strict")[0] == 1


@pytest.mark.parametrize(
    "flags", [("--threshold", "x"), ("--alpha", "0"), ("--alpha", "90%"), ("--threshold", "step=150%")]
)
def test_impossible_numbers_are_exit_2(command, stored, flags):
    old, new = stored("old", runs(STEADY)), stored("new", later(times(1)))
    code, out, err = command("check", new, "--baseline", old, *flags)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
