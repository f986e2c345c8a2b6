"""MFU and HFU, with numbers worked out by hand."""

import pytest

from parbench.cases import Case, Measured
from parbench.facts import Inspected
from parbench.metrics import timing_metrics
from parbench.observed import Flops
from parbench.peaks import Peak, peak_of
from parbench.record import Chosen, Round
from parbench.spec import RunSpec
from parbench.utilisation import utilisation

SHEETS = {
    ("NVIDIA H200", "bf16"): 989.5,
    ("NVIDIA H100 80GB HBM3", "bf16"): 989.5,
    ("NVIDIA H100 PCIe", "fp16"): 756.5,
    ("NVIDIA A100-SXM4-80GB", "tf32"): 156,
    ("NVIDIA A100-SXM4-40GB", "fp32"): 19.5,
    ("Tesla V100-SXM2-16GB", "fp16"): 125,
    ("Tesla T4", "fp16"): 65,
    ("NVIDIA L40S", "fp32"): 91.6,
    ("NVIDIA L4", "bf16"): 121,
}


@pytest.mark.parametrize(("device", "arithmetic"), SHEETS)
def test_peaks_are_those_of_the_data_sheets(device, arithmetic):
    found = peak_of(device, arithmetic)
    assert isinstance(found, Peak)
    assert found.tflops == SHEETS[device, arithmetic]
    assert "20" in found.source  # the year of the sheet


@pytest.mark.parametrize(
    ("device", "arithmetic"),
    [("cpu", "fp32"), ("NVIDIA Z9000", "fp32"), ("Tesla T4", "bf16"), ("NVIDIA A1000", "fp16")],
)
def test_a_peak_that_is_not_known_is_a_sentence(device, arithmetic):
    assert "--peak-tflops" in peak_of(device, arithmetic)


def measured(*, devices=("NVIDIA A100-SXM4-80GB",) * 2, gpus=2, flops=None, types=None, where="cuda", **changes):
    spec = RunSpec(**{"workload": "text", "strategy": "ddp", "world_size": 2} | changes)
    counted = flops or Flops(samples=8, model={"aten::mm": 6_240 * 10**9}, hardware={"aten::mm": 8_320 * 10**9})
    seen = Inspected(flops=counted, types=types or {"matrix product": "bf16", "communication": "fp32"})
    return Measured(
        case=Case(cell=0, repeat=0, spec=spec, spec_id="x"),
        inspected=(seen,),
        devices=devices,
        gpus=gpus,
        chosen={"device": Chosen(value=where, because="asked for")},
    )


def rounds(step_s=0.1, count=6, samples=8):
    return [
        Round(index=k, first_step=k, steps=1, samples=samples, wall_s=step_s, drain_s=0, rank_wall_s=())
        for k in range(count)
    ]


def used(m, taken=None):
    taken = taken or rounds()
    timing = timing_metrics([taken], unit="tokens", units_per_sample=128, world_size=m.case.spec.world_size)
    return utilisation(m, timing["step_time_s"], taken)


def test_6240_gflop_in_a_tenth_of_a_second_on_two_a100_are_a_tenth_of_their_peak():
    metrics, warnings = used(measured())
    assert metrics["tflops_per_device"].value == pytest.approx(31.2)
    assert metrics["mfu"].value == pytest.approx(0.1)
    assert metrics["hfu"].value == pytest.approx(0.1 * 8 / 6)
    assert (metrics["mfu"].ci_low, metrics["mfu"].ci_high, metrics["mfu"].n) == (
        pytest.approx(0.1),
        pytest.approx(0.1),
        6,
    )
    assert metrics["mfu"].quality == "measured"
    assert "312 TFLOP/s dense (NVIDIA data sheet A100" in metrics["mfu"].source
    assert not warnings


def test_by_tokens_per_second_it_is_the_same():
    """The other way of computing MFU: tokens per second and device, times FLOPs per token, by the peak."""
    m, taken = measured(), rounds(0.05)
    timing = timing_metrics([taken], unit="tokens", units_per_sample=128, world_size=2)
    per_token = 6_240e9 / (8 * 128)
    other = timing["tokens_per_s"].value / 2 * per_token / 312e12
    assert used(m, taken)[0]["mfu"].value == pytest.approx(other)


def test_smaller_batches_at_the_end_of_an_epoch_count_with_what_they_hold():
    taken = [*rounds(0.1, 5), *rounds(0.1, 1, samples=2)]
    assert used(measured(), taken)[0]["model_flops_per_step"].value == pytest.approx(6_240e9 * (5 * 8 + 2) / 48)


def test_ranks_that_share_a_gpu_use_one_peak():
    assert used(measured(gpus=1))[0]["mfu"].value == pytest.approx(0.2)


def test_a_peak_that_is_claimed_too_low_is_named_and_nothing_is_printed_bare():
    metrics, (warning,) = used(measured(peak_tflops=20.0))
    assert warning.code == "utilisation_above_peak"
    assert "156.0%" in warning.message
    assert "20 TFLOP/s" in warning.message
    assert "--peak-tflops" in warning.advice
    assert {metrics[name].quality for name in ("mfu", "hfu", "tflops_per_device")} == {"suspect"}
    assert metrics["model_flops_per_step"].quality == "measured"


def test_hfu_alone_can_be_impossible():
    metrics, (warning,) = used(measured(peak_tflops=40.0))
    assert metrics["mfu"].value < 1 < metrics["hfu"].value
    assert warning.message.startswith("HFU")


def test_a_step_time_that_is_not_believed_is_not_believed_in_rates_either():
    m, taken = measured(), rounds()
    timing = timing_metrics([taken], unit="samples", units_per_sample=1, world_size=2)
    metrics, _ = utilisation(m, timing["step_time_s"].suspected("clock"), taken)
    assert (metrics["mfu"].quality, metrics["mfu"].reason) == ("suspect", "clock")


def test_fp32_on_a_gpu_that_rounds_to_tf32_is_held_against_that_peak():
    tf32 = Flops(samples=8, model={"aten::mm": 10**9}, hardware={"aten::mm": 10**9}, tf32=("convolution",))
    assert "156 TFLOP/s" in used(measured(flops=tf32, types={"convolution": "fp32"}))[0]["mfu"].source
    both = used(measured(flops=tf32, types={"convolution": "fp32", "matrix product": "fp32"}))[0]["mfu"]
    assert (both.quality, "156 TFLOP/s" in both.source) == ("estimated", True)


@pytest.mark.parametrize(
    ("m", "reason"),
    [
        (measured(devices=("cpu", "cpu"), gpus=0, where="cpu"), "--peak-tflops"),
        (measured(devices=("NVIDIA H200", "NVIDIA L4")), "devices differ"),
        (measured(flops=Flops(reason="the model needs values")), "needs values"),
    ],
)
def test_what_is_not_known_is_unavailable_with_its_reason(m, reason):
    metrics, warnings = used(m)
    assert (metrics["mfu"].value, metrics["hfu"].quality) == (None, "unavailable")
    assert reason in metrics["mfu"].reason
    assert not warnings


def test_without_an_inspection_nothing_is_counted():
    m = measured()
    m.inspected = ()
    assert {one.quality for one in used(m)[0].values()} == {"unavailable"}
