"""Change points of histories made by hand: where the step is, between which commits, and none where there is none."""

import random
import sys

import pytest
from compare_cases import runs

from parbench.changepoints import changes
from parbench.errors import MissingError
from parbench.history import histories
from parbench.record import Metric
from parbench.summary import summary_of


def noisy(*levels, seed=0, noise=0.01):
    draw = random.Random(seed)
    return [level * draw.lognormvariate(0, noise) for level, count in levels for _ in range(count)]


def found_in(seconds, **settings):
    (history,) = histories([summary_of(one) for one in runs(seconds, **settings)], "results")
    return changes(history, metrics=["step_time_s"])


def place(point):
    """Return the number of the first run at the new level."""
    return int(point.after.removeprefix("run"))


def test_a_step_is_found_between_its_two_runs():
    (point,) = found_in(noisy((0.010, 15), (0.011, 12))).points
    assert abs(place(point) - 15) <= 1
    assert point.verdict == "worse"
    assert point.new / point.old == pytest.approx(1.1, rel=0.02)


def test_two_steps_are_found_the_latest_first():
    points = found_in(noisy((0.010, 15), (0.012, 12), (0.009, 12))).points
    assert [one.verdict for one in points] == ["better", "worse"]
    assert [abs(place(one) - true) <= 1 for one, true in zip(points, (27, 15), strict=True)] == [True, True]


def test_the_commit_range_is_told():
    slow, fast = ([], [])
    for k, s in enumerate(noisy((0.010, 10), (0.012, 10))):
        (slow if k >= 10 else fast).extend(runs([s], first=k, facts={"commit": f"c{k}"}))
    (history,) = histories([summary_of(one) for one in (*fast, *slow)], "results")
    (point,) = changes(history, metrics=["step_time_s"]).points
    assert point.commits == ("c9", "c10")


@pytest.mark.parametrize("seed", range(8))
def test_noise_has_no_steps(seed):
    assert found_in(noisy((0.010, 40), seed=seed, noise=0.03)).points == ()


def test_a_dip_of_two_runs_is_no_level():
    assert found_in([*noisy((0.010, 12)), 0.015, 0.015, *noisy((0.010, 12), seed=1)]).points == ()


def test_a_step_below_two_per_cent_is_none():
    assert found_in(noisy((0.0100, 20), (0.01012, 20), noise=0.0005)).points == ()


def test_a_number_that_never_varies_but_once_has_a_step():
    sizes = [100.0] * 8 + [200.0] * 8
    made = [
        runs([0.01], first=k, metrics={"traffic_bytes_per_step": Metric(value=v, unit="bytes", better="lower")})[0]
        for k, v in enumerate(sizes)
    ]
    (history,) = histories([summary_of(one) for one in made])
    (point,) = changes(history, metrics=["traffic_bytes_per_step"]).points
    assert (place(point), point.old, point.new) == (8, 100, 200)


def test_short_series_are_told_not_judged():
    found = found_in(noisy((0.010, 4), (0.020, 4)))
    assert (found.points, found.series) == ((), 0)
    assert "shorter than 9 runs" in found.notes[0]


def test_the_same_history_gives_the_same_points():
    seconds = noisy((0.010, 15), (0.0108, 15))
    assert found_in(seconds) == found_in(seconds)


def test_without_ruptures_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(MissingError, match=r"pip install 'parbench\[history\]'"):
        found_in(noisy((0.010, 15), (0.011, 12)))


def test_the_command_shows_the_step(command, stored):
    path = stored("many", runs(noisy((0.010, 12), (0.012, 12))))
    code, out, _ = command("history", path, "--metric", "step_time_s")
    assert code == 0
    assert "1 change points in 1 series of 24 runs" in out
    assert "worse" in out
    code, document, _ = command("history", path, "--json")
    assert {one["metric"] for one in document["points"]} == {"step_time_s", "samples_per_s"}
