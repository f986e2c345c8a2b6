"""Ranks that are slowed on purpose: what is drawn, what is refused, and what a record says of it."""

import statistics
import time
from pathlib import Path

import pytest
import torch

from contexts import context
from parbench import RunSpec, UsageError
from parbench.api import Batch, Trainer
from parbench.clock import HostClock
from parbench.comparable import differs
from parbench.loop import run_steps
from parbench.slowing import SERIES, Pace, pace_of, parse_speeds, parse_straggler, said, speeds_text, straggler_text
from parbench.slowing import unsupported as slowing_unsupported
from parbench.spec import spec_id
from parbench.store import read_record

MUSEUM = Path(__file__).parent / "records"


# ---- what is drawn


def waits(text, rank=0, steps=1000, seed=0):
    straggler = parse_straggler(text)
    return [straggler.wait_s(rank, step, seed) for step in range(steps)]


def test_a_rank_stops_once_in_every_so_many_steps():
    found = waits("fixed(seconds=2, every=10)")
    assert all(sorted(found[k : k + 10]) == [0.0] * 9 + [2.0] for k in range(0, 1000, 10))
    assert len({block.index(2.0) for block in (found[k : k + 10] for k in range(0, 1000, 10))}) == 10


def test_the_same_seed_gives_the_same_stops_and_ranks_and_seeds_differ():
    text = "exponential(mean=0.2, every=10)"
    assert waits(text) == waits(text)
    assert waits(text) != waits(text, rank=1) != waits(text, rank=1, seed=1)


def test_distributions_have_their_moments():
    """Exponential: mean and standard deviation m; uniform: (a + b) / 2 and (b - a) / sqrt(12); four errors allowed."""
    n = 20_000
    long = waits("exponential(mean=0.2)", steps=n)
    assert statistics.fmean(long) == pytest.approx(0.2, abs=4 * 0.2 / n**0.5)
    assert statistics.stdev(long) == pytest.approx(0.2, rel=0.05)
    flat = waits("uniform(low=1, high=3)", steps=n)
    assert statistics.fmean(flat) == pytest.approx(2, abs=4 * 2 / 12**0.5 / n**0.5)
    assert min(flat) >= 1
    assert max(flat) <= 3


def test_one_rank_may_be_the_straggler():
    assert not any(waits("fixed(1, rank=1)", rank=0))
    assert all(waits("fixed(1, rank=1)", rank=1))


def test_a_slow_rank_waits_as_long_as_it_computes_more():
    """At half its speed 0.3 s become 0.6, at a quarter 1.2."""
    assert Pace(rank=0, speed=0.5).wait_s(7, 0.3) == pytest.approx(0.3)
    assert Pace(rank=0, speed=0.25).wait_s(7, 0.3) == pytest.approx(0.9)
    both = Pace(rank=0, speed=0.5, straggler=parse_straggler("fixed(2)"))
    assert both.wait_s(7, 0.3) == pytest.approx(2.3)


def test_ranks_are_as_fast_as_they_are_unless_told_otherwise():
    assert pace_of(1, None, None, 0) is None
    assert pace_of(1, "1,0.5", None, 0).speed == 0.5
    assert pace_of(0, "1,0.5", None, 0).wait_s(3, 0.3) == 0


# ---- what is written


def test_spellings_of_one_thing_are_one():
    assert speeds_text("1, .5,1.0", 3) == "1,0.5,1"
    assert speeds_text("1,1.0", 2) is None
    assert straggler_text("exponential(0.2,every=1)") == straggler_text("exponential(mean=0.2)")


@pytest.mark.parametrize("text", ["", "1,,1", "fast", "0,1", "2,1", "nan,1", "-1,1", "inf,1"])
def test_what_is_no_speed_is_refused(text):
    with pytest.raises(UsageError, match=r"write one number from 0\.001 to 1"):
        parse_speeds(text)


def test_too_few_speeds_are_refused_with_both_numbers():
    with pytest.raises(UsageError, match="holds 2 of 3 ranks"):
        speeds_text("1,1", 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exponental(mean=1)", "did you mean 'exponential'"),
        ("exponential", "needs mean"),
        ("exponential(mean=-1)", "mean must be from 0"),
        ("exponential(mean=inf)", "mean must be from 0"),
        ("fixed(1, every=0)", "every must be from 1"),
        ("fixed(1, rank=-1)", "rank must be from 0"),
        ("uniform(low=2, high=1)", "low must not be above high"),
        ("os.system(1)", "no straggler distribution"),
    ],
)
def test_what_is_no_distribution_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse_straggler(text)


def test_speed_is_known_on_a_cpu_only():
    assert slowing_unsupported("1,0.5", "cpu") is None
    assert slowing_unsupported(None, "cuda") is None
    assert "--device cpu" in slowing_unsupported("1,0.5", "cuda")


def test_only_ranks_that_take_part_are_said_to_be_slow():
    assert said("1,0.5", None, 1) is None
    assert said("1,0.5", "fixed(1)", 2) == "--rank-speed 1,0.5 and --straggler fixed(1)"


# ---- the loop


class Busy(Trainer):
    """Computes for a while, then waits without computing."""

    def step(self, batch):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        time.sleep(0.05)
        return torch.zeros(())

    def full_parameters(self):
        return {}


class Place:
    step = None


def test_what_a_rank_computes_is_slowed_and_what_it_waits_is_not():
    found = run_steps(
        Busy(),
        lambda step: Batch(inputs=torch.zeros(8, 1), targets=torch.zeros(8)),
        context(1),
        HostClock(),
        first=0,
        count=3,
        progress=Place(),
        fault=lambda step: None,
        pace=Pace(rank=0, speed=0.5),
    )
    (series,) = found.series
    assert series.name == SERIES
    for waited_s, seconds in zip(series.values, found.seconds, strict=True):
        assert 0.01 <= waited_s < 0.05  # 10 ms of computing; the 50 ms of waiting are left out
        assert seconds >= 0.06 + waited_s


# ---- records


def test_ids_of_old_records_stay_as_they_are():
    for file in sorted(MUSEUM.glob("*.json")):
        record = read_record(file)
        assert spec_id(record.spec) == record.spec_id, file.name


def test_what_is_slowed_has_another_id_and_is_not_compared_with_what_is_not():
    record = read_record(MUSEUM / "record-1.3.json")
    plain, slow = (RunSpec(workload="digits", strategy="ddp", rank_speed=speeds) for speeds in (None, "1,0.5"))
    assert spec_id(plain) != spec_id(slow)
    one, two = (_with(record, spec) for spec in (plain, slow))
    assert [(found.what, found.forbids) for found in differs([one], [two])] == [("rank_speed", "rank_speed")]


def _with(record, spec):
    import msgspec

    return msgspec.structs.replace(record, spec=spec)


def test_a_record_says_that_ranks_were_slowed_and_by_how_much(parbench):
    done = parbench(
        *("digits", "--size", "smoke", "-s", "single", "-s", "ddp", "-n", 2, "--steps", 10, "--warmup", 2),
        *("--rank-speed", "1,0.25", "--straggler", "fixed(seconds=0.002, every=5, rank=1)", "--parity-steps", 1),
    )
    assert done.code == 0, done.err
    slow = done.records["ddp"]
    assert slow["spec"]["rank_speed"] == "1,0.25"
    assert slow["spec"]["straggler"] == "fixed(every=5, rank=1, seconds=0.002)"
    (warning,) = [one for one in slow["warnings"] if one["code"] == "slowed_on_purpose"]
    assert "--rank-speed 1,0.25 and --straggler fixed" in warning["message"]
    rows = [row for row in done.steps(slow) if row["phase"] == "timed"]
    assert {row[SERIES] for row in rows if row["rank"] == 0} == {0.0}
    waited = [row[SERIES] for row in rows if row["rank"] == 1]
    assert min(waited) > 0
    assert sum(one >= 0.002 for one in waited) >= len(waited) // 5
