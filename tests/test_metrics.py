"""Metrics are checked with a fake clock, whose rounds are worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest

from parbench.metrics import combine, judged, mark_suspect, self_check, timing_metrics, usable
from parbench.record import Agreement, Environment, Metric, Round, RunRecord, WarmUp
from parbench.spec import RunSpec, spec_id


def a_round(
    index: int = 0,
    *,
    steps: int = 1,
    samples: int = 8,
    wall_s: float = 1.0,
    drain_s: float = 0.0,
    ranks: tuple[float, ...] = (1.0,),
) -> Round:
    walls = tuple(wall_s * share for share in ranks)
    return Round(
        index=index,
        first_step=index * steps,
        steps=steps,
        samples=samples,
        wall_s=wall_s,
        drain_s=drain_s,
        rank_wall_s=walls,
    )


def timing(
    rounds: list[Round], *, unit: str = "samples", units_per_sample: int = 1, world_size: int = 2
) -> dict[str, Metric]:
    return timing_metrics([rounds], unit=unit, units_per_sample=units_per_sample, world_size=world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 4096])
@pytest.mark.parametrize("rounds", [[a_round(0), a_round(1)], [a_round(steps=2, samples=16, wall_s=2.0)]])
def test_two_steps_of_a_second_with_8_samples_are_8_samples_a_second_for_any_world_size(
    world_size: int, rounds: list[Round]
) -> None:
    metrics = timing(rounds, world_size=world_size)
    assert metrics["samples_per_s"].value == 8.0
    assert metrics["step_time_s"].value == 1.0
    assert metrics["samples_per_s_per_device"].value == pytest.approx(8.0 / world_size)


def test_throughput_is_a_ratio_of_sums_and_step_time_a_median() -> None:
    metrics = timing([a_round(wall_s=1.0), a_round(wall_s=1.0), a_round(wall_s=4.0)])
    assert metrics["step_time_s"].value == 1.0
    assert metrics["samples_per_s"].value == 24 / 6


def test_tokens_count_units_of_a_sample() -> None:
    metrics = timing([a_round()], unit="tokens", units_per_sample=128)
    assert metrics["tokens_per_s"].value == 8 * 128
    assert metrics["tokens_per_s"].unit == "tokens/s"


def test_a_workload_without_tokens_says_so() -> None:
    tokens = timing([a_round()])["tokens_per_s"]
    assert (tokens.value, tokens.quality) == (None, "unavailable")
    assert "counts samples, not tokens" in tokens.reason


def test_intervals_appear_with_six_rounds() -> None:
    five, six = timing([a_round()] * 5), timing([a_round()] * 6)
    assert five["step_time_s"].ci_low is None
    assert (six["step_time_s"].ci_low, six["step_time_s"].ci_high, six["step_time_s"].n) == (1.0, 1.0, 6)
    assert six["samples_per_s_per_device"].ci_low == 4.0


@pytest.mark.parametrize("launches", [[], [[]], [[a_round(wall_s=-1.0)]]])
def test_without_rounds_everything_is_unavailable_with_a_reason(launches: list[list[Round]]) -> None:
    metrics = timing_metrics(launches, unit="tokens", units_per_sample=4, world_size=2)
    assert len(metrics) == 4
    assert all(m.value is None and m.quality == "unavailable" and m.reason for m in metrics.values())


@pytest.mark.parametrize("wall_s", [-1.0, 0.0, math.nan, math.inf])
def test_time_that_goes_backwards_is_dropped_and_flagged(wall_s: float) -> None:
    rounds = [a_round(0), a_round(1, wall_s=wall_s), a_round(2)]
    assert timing(rounds)["step_time_s"].n == 2
    assert timing(rounds)["samples_per_s"].value == 8.0
    assert "negative_interval" in [w.code for w in self_check(rounds, [])]


def test_a_negative_step_is_flagged() -> None:
    assert "negative_interval" in [w.code for w in self_check([a_round(steps=2)], [[2.0, -1.0]])]


def test_steps_that_add_up_pass() -> None:
    rounds = [a_round(k, steps=2, wall_s=1.0, drain_s=0.2, ranks=(1.0, 0.9)) for k in range(3)]
    assert self_check(rounds, [[0.4, 0.4] * 3, [0.35, 0.35] * 3], metrics=timing(rounds)) == []


@pytest.mark.parametrize(
    "steps",
    [
        [[0.5, 0.4]],  # a tenth of the round is nowhere
        [[0.01, 0.01]],  # launched, never synchronised
        [[1.0, 1.0]],  # counted twice
        [[0.5]],  # a step is missing
    ],
)
def test_steps_that_do_not_add_up_make_timing_suspect(steps: list[list[float]]) -> None:
    rounds = [a_round(steps=2)]
    warnings = self_check(rounds, steps)
    assert [w.code for w in warnings] == ["timing_does_not_add_up"]
    marked = judged(timing(rounds), warnings)
    assert marked["step_time_s"].quality == "suspect"
    assert marked["step_time_s"].value == 0.5
    assert marked["tokens_per_s"].quality == "unavailable"


def test_within_two_per_cent_passes_and_beyond_does_not() -> None:
    assert self_check([a_round()], [[0.981]]) == []
    assert self_check([a_round()], [[0.979]]) != []


def test_drain_counts_as_part_of_the_round() -> None:
    assert self_check([a_round(drain_s=0.5)], [[0.5]]) == []
    assert [w.code for w in self_check([a_round(drain_s=0.5)], [[1.0]])] == ["timing_does_not_add_up"]


def test_only_the_wrong_rank_is_named() -> None:
    (warning,) = self_check([a_round(ranks=(1.0, 1.0))], [[1.0], [0.5]])
    assert "rank 1" in warning.message


def test_the_round_must_be_as_long_as_its_slowest_rank() -> None:
    assert [w.code for w in self_check([a_round(ranks=(0.5, 0.6))], [])] == ["timing_does_not_add_up"]


@pytest.mark.parametrize(("first_s", "warned"), [(2.0, True), (0.4, False), (0.19, False)])
def test_slow_first_step_is_told_with_advice(first_s: float, warned: bool) -> None:
    warm_up = WarmUp(steps=3, wall_s=3.0, first_step_s=first_s, steady=True, rule="3 steps")
    found = self_check([a_round(wall_s=0.1)], [], warm_up=warm_up)
    assert [w.code for w in found] == (["slow_first_step"] if warned else [])
    assert all(w.advice for w in found)
    assert judged(timing([a_round(wall_s=0.1)]), found)["step_time_s"].quality == "measured"


def test_steps_below_resolution_are_suspect() -> None:
    rounds = [a_round(wall_s=2e-6)] * 7
    warnings = self_check(rounds, [])
    assert [w.code for w in warnings] == ["below_resolution"]
    assert judged(timing(rounds), warnings)["samples_per_s"].quality == "suspect"


def test_samples_must_match_time() -> None:
    rounds = [a_round()] * 2
    wrong = {"samples_per_s": Metric(value=16.0, unit="samples/s", better="higher")}
    assert [w.code for w in self_check(rounds, [], metrics=wrong)] == ["samples_do_not_match_time"]


def test_mark_suspect_leaves_other_metrics_alone() -> None:
    marked = mark_suspect(
        timing([a_round()]) | {"peak_memory_bytes": Metric(value=1.0, unit="bytes", better="lower")}, "why"
    )
    assert marked["peak_memory_bytes"].quality == "measured"
    assert (marked["step_time_s"].quality, marked["step_time_s"].reason) == ("suspect", "why")


def test_usable_keeps_order() -> None:
    assert [r.index for r in usable([a_round(0), a_round(1, samples=0), a_round(2)])] == [0, 2]


SPEC = RunSpec(workload="digits", strategy="ddp")


def a_record(
    *,
    walls: Sequence[float] = (),
    repeat: int = 0,
    status: str = "complete",
    spec: RunSpec = SPEC,
    fingerprint: str = "f",
    software: str = "s",
    metrics: dict[str, Metric] | None = None,
    run_id: str | None = None,
    unit: str = "tokens",
) -> RunRecord:
    rounds = tuple(a_round(k, wall_s=w) for k, w in enumerate(walls))
    return RunRecord(
        id=run_id or f"20261130T112233Z-{repeat:08x}",
        suite="s",
        status=status,
        reason=None if status == "complete" else "rank 1 raised",
        started_at="2026-11-30T11:22:33Z",
        spec=spec,
        spec_id=spec_id(spec),
        repeat=repeat,
        environment=Environment(fingerprint=fingerprint, software=software, facts={}),
        agreement=Agreement(declared="exactly", passed=True),
        metrics=timing(rounds) | (metrics or {}),
        launch={"unit": unit, "units_per_sample": 16},
        rounds=rounds,
    )


def test_repeats_become_one_cell() -> None:
    records = [
        a_record(walls=[1.0] * 4, repeat=1),
        a_record(walls=[2.0] * 4, repeat=0),
        a_record(status="failed", repeat=2),
    ]
    (cell,) = combine(records)
    assert (cell.launches, cell.statuses) == (2, ("complete", "complete", "failed"))
    assert cell.run_ids[0].endswith("00000000")
    assert cell.launch_medians["step_time_s"] == [2.0, 1.0]
    assert cell.spread["step_time_s"] == pytest.approx(1 / 1.5)
    assert (cell.metrics["step_time_s"].value, cell.metrics["step_time_s"].n) == (1.5, 8)
    assert cell.metrics["samples_per_s"].value == pytest.approx(64 / 12)
    assert cell.metrics["tokens_per_s"].value == pytest.approx(64 / 12 * 16)


@pytest.mark.parametrize(("status", "rankable"), [("failed", False), ("oom", False), ("interrupted", True)])
def test_a_cell_of_which_one_launch_failed_is_not_ranked(status, rankable) -> None:
    (cell,) = combine([a_record(walls=[1.0] * 4), a_record(status=status, repeat=1)])
    assert (cell.launches, cell.rankable) == (1, rankable)


def test_other_metrics_are_medians_over_launches() -> None:
    memory = [Metric(value=v, unit="bytes", better="lower", n=1, source="allocator") for v in (3.0, 1.0, 7.0)]
    records = [a_record(walls=[1.0], repeat=k, metrics={"peak_memory_bytes": m}) for k, m in enumerate(memory)]
    found = combine(records)[0].metrics["peak_memory_bytes"]
    assert (found.value, found.n, found.unit, found.ci_low) == (3.0, 3, "bytes", None)


def test_one_launch_keeps_its_metrics_as_they_are() -> None:
    memory = Metric(value=3.0, unit="bytes", better="lower", n=5, ci_low=2.0, ci_high=4.0, source="allocator")
    assert combine([a_record(walls=[1.0], metrics={"m": memory})])[0].metrics["m"] == memory


def test_a_cell_that_failed_says_why() -> None:
    (cell,) = combine([a_record(status="oom")])
    assert (cell.launches, cell.rankable, cell.launch_medians) == (0, False, {})
    assert "oom" in cell.metrics["step_time_s"].reason


def test_one_suspect_launch_makes_the_cell_suspect() -> None:
    good, bad = a_record(walls=[1.0] * 6), a_record(walls=[1.0] * 6, repeat=1)
    bad = msgspec.structs.replace(bad, metrics=mark_suspect(bad.metrics, "does not add up"))
    (cell,) = combine([good, bad])
    assert (cell.metrics["step_time_s"].quality, cell.metrics["step_time_s"].reason) == ("suspect", "does not add up")
    assert not cell.rankable


def test_cells_keep_order_and_machines_apart() -> None:
    other = RunSpec(workload="digits", strategy="single")
    records = [a_record(walls=[1.0]), a_record(walls=[1.0], spec=other), a_record(walls=[9.0], fingerprint="elsewhere")]
    cells = combine(records)
    assert [(c.strategy, c.fingerprint) for c in cells] == [("ddp", "f"), ("single", "f"), ("ddp", "elsewhere")]
    assert combine([]) == []
