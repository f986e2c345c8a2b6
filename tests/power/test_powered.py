"""What a record says of energy: sums over boards by hand, and every doubt by name."""

import pytest

from parbench.cases import Case, Measured
from parbench.observed import Power, Reading
from parbench.powered import power_cautions, power_metrics
from parbench.spec import RunSpec


def board(**changes):
    found = {"energy_j": 600.0, "counter_j": 600.0, "integral_j": 590.0, "source": "counter", "limit_w": 700.0}
    return Reading(name="NVIDIA H200", id="x", index=0, scope="GPU board", window_s=2.0, steps=20, **(found | changes))


def measured(*boards, reason=None, devices=("NVIDIA H200",) * 2, unit="tokens", **spec):
    case = Case(cell=0, repeat=0, spec=RunSpec(workload="text", strategy="ddp", **spec), spec_id="x")
    power = Power(boards=boards, samples=160, reason=reason)
    return Measured(case=case, power=power, unit=unit, units_per_sample=64, devices=devices)


def told(*boards, **changes):
    m = measured(*boards, **changes)
    cautions = power_cautions(m)
    return power_metrics(m, cautions), cautions


def test_energy_is_the_sum_over_boards_never_multiplied_by_ranks():
    metrics, cautions = told(board(), board(energy_j=400.0, counter_j=400.0, integral_j=400.0), world_size=8)
    assert metrics["energy_j_per_step"].value == 1000 / 20
    assert metrics["energy_j_per_sample"].value == 1000 / 160
    assert metrics["energy_j_per_token"].value == 1000 / (160 * 64)
    assert metrics["power_w"].value == 1000 / 2
    assert {one.quality for one in metrics.values()} == {"measured"}
    assert metrics["power_w"].source.startswith(
        "2 GPU boards, idle power included, energy counter, over 20 steps in 2 s"
    )
    assert not cautions


def test_a_board_without_a_number_makes_the_sum_unavailable():
    metrics, _ = told(board(), board(energy_j=None, reason="power could not be read"))
    assert {one.quality for one in metrics.values()} == {"unavailable"}
    assert metrics["power_w"].reason == "power could not be read"


def test_no_meter_is_a_reason():
    assert told(reason="NVML library not found")[0]["energy_j_per_step"].reason == "NVML library not found"
    m = measured()
    m.power = None
    assert "ended before" in power_metrics(m, [])["power_w"].reason


def test_a_short_window_or_a_part_of_a_board_is_an_estimate():
    one = told(board(estimated="the window is shorter than 10 periods"))[0]["energy_j_per_step"]
    assert (one.quality, one.reason) == ("estimated", "the window is shorter than 10 periods")


def test_averages_are_called_so():
    one = told(board(source="integral", field="average", counter_j=None))[0]["power_w"]
    assert "integral of polled power (averages over a second)" in one.source


@pytest.mark.parametrize(("integral_j", "agrees"), [(520.0, True), (500.0, False), (700.0, True), (720.0, False)])
def test_counter_and_integral_may_differ_by_15_per_cent(integral_j, agrees):
    metrics, cautions = told(board(integral_j=integral_j))
    assert [one.code for one in cautions] == ([] if agrees else ["energy_disagrees"])
    assert metrics["energy_j_per_step"].quality == ("measured" if agrees else "suspect")


@pytest.mark.parametrize(("energy_j", "fits"), [(1400.0, True), (1600.0, False)])
def test_no_board_draws_more_than_its_limit_for_long(energy_j, fits):
    """700 W for two seconds."""
    metrics, cautions = told(board(energy_j=energy_j, counter_j=energy_j, integral_j=energy_j))
    assert [one.code for one in cautions] == ([] if fits else ["energy_above_limit"])
    assert metrics["power_w"].quality == ("measured" if fits else "suspect")


def test_heat_and_a_cap_are_told_apart():
    (heat,) = told(board(throttled=("hardware thermal slowdown",), clocks_mhz=(1170, 1980), most_clock_mhz=1980))[1]
    (cap,) = told(board(throttled=("software power cap",), limit_w=400.0))[1]
    assert heat.code == cap.code == "throttled"
    assert "clocks of 1170 to 1980 MHz of 1980" in heat.message
    assert "drifts with temperature" in heat.advice
    assert "400 W" in cap.advice


def test_neighbours_and_several_models_are_named():
    assert [one.code for one in told(board(others=2))[1]] == ["gpu_shared"]
    (mixed,) = told(board(), devices=("NVIDIA H200", "NVIDIA L4"))[1]
    assert mixed.code == "mixed_gpus"
    assert "NVIDIA H200, NVIDIA L4" in mixed.message


def test_boards_that_suffer_alike_are_one_warning():
    assert len(told(board(others=2), board(others=3))[1]) == 1
