"""Horovod-like training is DDP's however gradients are fused, overlaps with backward, and ends when ranks fail."""

import datetime
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from contexts import context
from parbench import RankFailed, RunSpec, Session, UsageError
from parbench.conformance import check_strategy
from parbench.registry import Registry
from parbench_strategies.replicated._fusion import fused
from parbench_strategies.replicated._negotiation import Control, Coordinator, GaveUpError, Reply, Report

PLUGIN = Path(__file__).parent / "sleepy.py"
REGISTRY = Registry([PLUGIN])
SPLIT = "horovod_like(cycle_time_ms=0.1, fusion_buffer_mb=0.0005)"  # 524 bytes: a block's weight and bias are 288


@pytest.fixture(scope="module")
def session():
    with Session(world_size=3, plugins=[PLUGIN]) as ranks:
        yield ranks


def spec(strategy, workload="sleepy", world_size=3, **changes):
    return RunSpec(workload=workload, strategy=strategy, size="smoke", world_size=world_size, **changes)


def seen(round_, name, rank=0):
    return next(one.values for one in round_.ranks[rank].series if one.name == name)


def run(session, steps, *arguments, **changes):
    variant = session.add(spec(*arguments, probes=("sleepy",), **changes))
    try:
        return variant.round(steps)
    finally:
        variant.close()


# ---- laws


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("strategy", "world_size"), [("horovod_like", 2), ("horovod_like(cycle_time_ms=0.3, fusion_buffer_mb=0.002)", 3)]
)
def test_it_obeys_the_laws(session, strategy, world_size):
    verdict = check_strategy(strategy, world_size, session=session)
    assert verdict.passed, verdict.broken
    assert [f.law for f in verdict.findings if f.outcome == "not applicable"] == []


# ---- the same results as DDP


def test_what_only_some_ranks_use_is_averaged_and_what_none_uses_has_no_gradient(session):
    """One sample of a batch uses `sometimes`, or none does; `never` must not be moved by momentum or decay."""
    variant = session.add(spec("horovod_like", "sleepy(awkward=True)"))
    assert (found := variant.parity(steps=6)).passed, found
    variant.close()
    variant = session.add(spec("horovod_like", "sleepy(awkward=True)", accumulate=2))
    assert (found := variant.parity(steps=6)).passed, found
    variant.close()


@pytest.mark.nightly
def test_300_steps_with_random_pauses_are_those_of_ddp(session):
    workload = "sleepy(sleep_ms=0.4)"
    ddp = run(session, 300, "ddp", workload)
    mine = run(session, 300, "horovod_like(cycle_time_ms=0.2, fusion_buffer_mb=0.0005)", workload)
    after = run(session, 1, "ddp", workload)
    # The order of additions differs in every step, which 300 steps with momentum add up to some millionths.
    assert mine.losses == pytest.approx(ddp.losses, rel=1e-4)
    assert len(set(seen(mine, "all_reduces"))) > 1, "timing decided nothing: this test shows too little"
    for rank in range(3):
        (before,) = set(seen(ddp, "threads", rank))
        assert set(seen(mine, "threads", rank)) == {before + 1}
        assert seen(after, "threads", rank) == (before,)


def test_one_rank_trains_bare(session):
    found = run(session, 3, "horovod_like", world_size=1)
    assert seen(found, "all_reduces") == (0, 0, 0)
    assert found.losses == pytest.approx(run(session, 3, "no_overlap", world_size=1).losses, rel=1e-6)


# ---- fusion and overlap


def test_a_short_cycle_overlaps_with_a_slow_backward(session):
    """With a buffer for everything, a second message of a step can only come of a cycle while backward went on."""
    slow = "sleepy(sleep_ms=10)"
    overlapped = run(session, 3, "horovod_like(cycle_time_ms=0.1)", slow)
    assert min(seen(overlapped, "all_reduces")) > 1
    fused_late = run(session, 3, "horovod_like(cycle_time_ms=200)", slow)
    assert max(seen(fused_late, "all_reduces")) <= 2  # the first gradient alone, and everything else a cycle later
    assert overlapped.losses == pytest.approx(fused_late.losses, rel=1e-6)


def test_a_small_buffer_splits_and_the_bytes_stay(session):
    whole = run(session, 2, "horovod_like(cycle_time_ms=20)")
    split = run(session, 2, "horovod_like(cycle_time_ms=20, fusion_buffer_mb=0.0005)")
    apart = run(session, 2, "horovod_like(cycle_time_ms=20, fusion_buffer_mb=0)")
    assert max(seen(whole, "all_reduces")) <= 2
    assert min(seen(split, "all_reduces")) >= 4  # 4 blocks of 288 bytes, 524 fit
    assert seen(apart, "all_reduces") == (8, 8)
    for one in (whole, split, apart):
        assert seen(one, "all_reduce_bytes") == pytest.approx([4 * 288 * 4 / 3] * 2)
        assert one.losses == pytest.approx(whole.losses, rel=1e-6)


def test_messages_are_filled_in_order_by_kind():
    assert fused([4, 4, 4, 4], "aaaa", 8) == [[0, 1], [2, 3]]
    assert fused([4, 20, 4, 4], "aaaa", 8) == [[0], [1], [2, 3]]
    assert fused([4, 4, 4, 4], "abab", 8) == [[0, 2], [1, 3]]
    assert fused([4, 4], "aa", 0) == [[0], [1]]
    assert fused([], "", 8) == []


# ---- negotiation


def test_a_gradient_is_reduced_once_all_ranks_have_it():
    coordinator = Coordinator(2)
    assert coordinator.reply_to([Report(ready=[3, 1]), Report(ready=[1])]) == Reply(reduce=(1,))
    assert coordinator.reply_to([Report(), Report(ready=[2])]) == Reply()
    assert coordinator.reply_to([Report(ready=[2]), Report(ready=[3])]) == Reply(reduce=(3, 2))


def test_a_rank_that_is_done_stands_for_what_it_lacks():
    coordinator = Coordinator(2)
    assert coordinator.reply_to([Report(ready=[1, 2], complete=True), Report(ready=[2])]) == Reply(reduce=(2,))
    assert coordinator.reply_to([Report(complete=True), Report(complete=True)]) == Reply(reduce=(1,), finished=True)
    assert coordinator.reply_to([Report(ready=[1]), Report()]) == Reply()  # the next step starts from nothing


class Group:
    """What a Control needs of a process group."""

    def __init__(self, rank, size, store):
        self._rank, self._size, self._store = rank, size, store

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def get_group_store(self):
        return self._store


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=2), wait_for_workers=False)


def together(controls, *calls):
    """Let every control make its calls, each in a thread of its own; return results or errors in rank order."""

    def of(control, call):
        try:
            return call(control)
        except (RuntimeError, GaveUpError, TimeoutError) as error:
            return error

    with ThreadPoolExecutor(len(controls)) as pool:
        return list(pool.map(of, controls, calls))


def reports(*ready, complete=False, given_up=False):
    return [lambda c, k=k: c.exchange(Report(ready=k, complete=complete), lambda: given_up) for k in ready]


def test_ranks_agree_through_the_store_and_leave_nothing_there(store):
    controls = [Control(Group(rank, 3, store), "mine") for rank in range(3)]
    assert together(controls, *reports([0], [0, 1], [1, 0])) == [Reply(reduce=(0,))] * 3
    assert together(controls, *reports([], [], [], complete=True)) == [Reply(reduce=(1,), finished=True)] * 3
    assert store.num_keys() <= 2  # the last reply; TCPStore has a key of its own
    together(controls, *[Control.close] * 3)
    assert [key for key in store.list_keys() if "mine" in key] == []


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_rank_that_gives_up_is_named_to_the_others_at_once(store, gone):
    controls = [Control(Group(rank, 3, store), "mine") for rank in range(3)]
    together(controls, *reports([0], [1], [2]))
    calls = reports([], [], [])
    calls[gone] = Control.give_up
    started_s = time.monotonic()
    found = together(controls, *calls)
    assert time.monotonic() - started_s < 1
    for rank, error in enumerate(found):
        assert (error is None) == (rank == gone)
        assert rank == gone or f"rank {gone} gave up this step" in str(error)
    together(controls, *[Control.close] * 3)
    assert [key for key in store.list_keys() if "mine" in key] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_waits_for_ranks_that_are_gone(store, rank):
    control = Control(Group(rank, 3, store), "mine")
    with pytest.raises(GaveUpError):
        control.exchange(Report(), lambda: True)
    with pytest.raises(TimeoutError, match=r"timed out after .* waiting for mine/"):
        control.exchange(Report(), lambda: False)


def test_others_can_use_the_store_while_a_control_waits(store):
    control = Control(Group(0, 2, store), "mine")
    waits = threading.Thread(target=lambda: together([control], *reports([])), daemon=True)
    waits.start()
    time.sleep(0.1)
    started_s = time.monotonic()
    store.set("other", "1")
    assert store.get("other") == b"1"
    assert time.monotonic() - started_s < 0.4
    waits.join(10)


# ---- failures


def test_a_rank_that_fails_in_backward_ends_the_launch(tmp_path):
    started_s = time.monotonic()
    with (
        pytest.raises(RankFailed, match="rank 1/2 step 2 RuntimeError: planned by the test"),
        Session(world_size=2, plugins=[PLUGIN], log_folder=tmp_path) as ranks,
    ):
        ranks.add(spec("horovod_like", "sleepy(sleep_ms=1, fails_at=3)", world_size=2)).round(5)
    assert time.monotonic() - started_s < 20


# ---- arguments and closed forms


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("cycle_time_ms=-1", "cycle_time_ms must be from 0"),
        ("cycle_time_ms=inf", "cycle_time_ms must be from 0"),
        ("fusion_buffer_mb=-0.5", "fusion_buffer_mb must be from 0"),
        ("fusion_buffer_mb=1000000", "fusion_buffer_mb must be from 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        REGISTRY.resolve("strategy", f"horovod_like({arguments})")


def test_the_buffer_counts_as_gradients_up_to_what_it_takes():
    job = REGISTRY.resolve("workload", "sleepy").build("smoke", 0, torch.device("cpu"), 8)
    all_gradients = 4 * 288
    for strategy, buffer in (("horovod_like", all_gradients), (SPLIT, 524)):
        strategy = REGISTRY.resolve("strategy", strategy)
        assert strategy.memory(job, context(2)).gradients == all_gradients + buffer
        assert strategy.traffic(job, context(2)) == {"all_reduce": Fraction(all_gradients)}
