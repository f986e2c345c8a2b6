"""What disturbs a measurement is named in the record: a busy neighbour, a slow rank, a peak claimed too low."""

import multiprocessing
import time

import pytest

from parbench.cases import Case, Measured
from parbench.cautions import cautions
from parbench.facts import Inspected
from parbench.launch.messages import StepsDone
from parbench.neighbours import Neighbours, neighbour_caution
from parbench.record import Environment
from parbench.session import RoundSamples
from parbench.spec import RunSpec


def codes(done, strategy):
    return [one["code"] for one in done.records[strategy]["warnings"]]


def test_a_slow_rank_and_a_peak_claimed_too_low_are_named_and_fail_under_strict(parbench):
    arguments = ("text", "--size", "smoke", "-s", "ddp", "--steps", 40, "--parity-steps", 0, "--warmup", 5)
    done = parbench(*arguments, "--peak-tflops", "1e-6", "--strict", fault="rank=1,step=0,kind=slow,factor=2.5")
    assert {"slow_rank", "utilisation_above_peak"} <= set(codes(done, "ddp"))
    (slow,) = [one for one in done.records["ddp"]["warnings"] if one["code"] == "slow_rank"]
    assert slow["message"].startswith("rank 1 ")
    assert done.code == 1
    assert done.records["ddp"]["metrics"]["mfu"]["quality"] == "suspect"
    assert 0 < done.records["ddp"]["launch"]["harness_s_per_step"] < 0.1


def spin(stop_s):
    while time.perf_counter() < stop_s:
        pass


def test_a_process_that_spins_beside_is_a_busy_neighbour():
    """It keeps a core busy for half a second, as far as it gets one."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=spin, args=(time.perf_counter() + 60,))
    process.start()
    try:
        while process.is_alive() and sum(_times(process.pid)) < 0.2:  # it has begun
            time.sleep(0.02)
        watched, before_s, started_s = Neighbours([process.pid]), sum(_times(process.pid)), time.perf_counter()
        others = Neighbours([multiprocessing.current_process().pid])
        time.sleep(0.6)
        spent_s = sum(_times(process.pid)) - before_s
        as_neighbour, as_ours = others.cores(), watched.cores()
        wall_s = time.perf_counter() - started_s
    finally:
        process.kill()
        process.join()
    # What it took, a neighbour is said to have taken; where it is one of ours, it is not. Cores count in hundredths.
    assert as_neighbour >= spent_s / wall_s - 0.1
    assert as_ours <= as_neighbour - spent_s / wall_s + 0.2


def _times(pid):
    import psutil

    found = psutil.Process(pid).cpu_times()
    return found.user, found.system


@pytest.mark.parametrize(
    ("cores", "of", "said"), [(None, 2, False), (0.1, 2, False), (0.3, 2, True), (1.0, 64, False), (9.0, 64, True)]
)
def test_neighbours_matter_from_a_tenth_of_the_cores_on(cores, of, said):
    found = neighbour_caution(cores, of)
    assert (found is not None) is said
    if said:
        assert f"{cores:.1f} of {of} cores" in found.message


def test_what_is_ours_alone_or_too_short_is_not_judged():
    assert Neighbours([]).cores() is None
    assert Neighbours([multiprocessing.current_process().pid]).cores() is None


def measured(positions=640, cost_s=1e-5):
    done = StepsDone(seconds=(0.1,), losses=(1.0,), samples=(10,), wall_s=0.1, positions=positions)
    taken = RoundSamples(first_step=0, samples=(10,), losses=(1.0,), ranks=(done,), nonfinite=())
    case = Case(cell=0, repeat=0, spec=RunSpec(workload="text", strategy="ddp"), spec_id="x")
    seen = (Inspected(cost_s=cost_s),)
    return Measured(case=case, rounds=[taken], unit="tokens", units_per_sample=64, inspected=seen)


def cautioned(m):
    return [one.code for one in cautions(m, Environment(fingerprint="", software="", facts={}))]


def test_tokens_that_are_counted_are_those_that_were_fed():
    assert cautioned(measured()) == []
    assert cautioned(measured(positions=320)) == ["tokens_do_not_match"]


def test_meters_may_cost_250_us_per_step():
    assert cautioned(measured(cost_s=249e-6)) == []
    assert cautioned(measured(cost_s=251e-6)) == ["costly_probes"]
