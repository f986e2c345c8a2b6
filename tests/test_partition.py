"""Which samples ranks see when data are partitioned, and what they lend each other."""

from pathlib import Path

import pytest
import torch

from contexts import context
from parbench import UsageError
from parbench.registry import Registry
from parbench_strategies.relaxed._injection import Injection
from parbench_strategies.relaxed._partition import portion

REGISTRY = Registry([Path(__file__).parent / "optimized.py"])
RANKS = 3


def digits(batch_size=120):
    return REGISTRY.resolve("workload", "digits").build("smoke", 0, torch.device("cpu"), batch_size)


def seen(partition, rank, epoch):
    """Return what a rank sees in an epoch, one row per sample, in order."""
    job = digits()
    steps = range(epoch * job.steps_per_epoch, (epoch + 1) * job.steps_per_epoch)
    shares = [portion(partition, job, step, job.batch(step), rank, RANKS) for step in steps]
    return [tuple(row) for share in shares for row in share.inputs.tolist()]


def test_an_epoch_of_digits_is_1438_train_images():
    assert digits().steps_per_epoch == 12  # 11 batches of 120, one of 118


def test_shares_are_drawn_anew_in_every_epoch():
    assert set(seen("shares", 0, 0)) != set(seen("shares", 0, 1))


def test_a_rank_keeps_its_own_chunk():
    assert seen("chunks", 1, 0) == seen("chunks", 1, 2) == seen("shares", 1, 0)


def test_with_rotation_every_rank_sees_all_of_the_data_each_in_another_order():
    orders = [[row for epoch in range(RANKS) for row in seen("rotated", rank, epoch)] for rank in range(RANKS)]
    whole = {row for rank in range(RANKS) for row in seen("shares", rank, 0)}
    assert all(set(order) == whole for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_labels_give_a_rank_some_classes_only():
    job = digits()
    first, middle, last = (portion("labels", job, 0, job.batch(0), rank, RANKS).targets for rank in range(RANKS))
    assert first.max() <= middle.min() <= middle.max() <= last.min()
    assert sorted([*first.tolist(), *middle.tolist(), *last.tolist()]) == sorted(job.batch(0).targets.tolist())


@pytest.mark.parametrize("strategy", ["selsync(partition=rotated)", "selsync(partition=chunks)"])
def test_data_without_epochs_cannot_be_cut_in_chunks(strategy):
    job = REGISTRY.resolve("workload", "optimized").build("smoke", 0, torch.device("cpu"), 24)
    assert "says of none" in REGISTRY.resolve("strategy", strategy).unsupported(job, context(RANKS))
    assert REGISTRY.resolve("strategy", strategy).unsupported(digits(), context(RANKS)) is None


@pytest.mark.parametrize("strategy", ["selsync(partition=labels)", "fedavg(partition=labels)"])
def test_text_has_no_labels(strategy):
    job = REGISTRY.resolve("workload", "text").build("smoke", 0, torch.device("meta"), 8)
    assert "one class per sample" in REGISTRY.resolve("strategy", strategy).unsupported(job, context(RANKS))


def test_a_lent_batch_is_as_large_as_before():
    """One of four ranks lends a quarter: 32 / (1 + 0.25) = 25 of its own and 6 lent (the paper's alpha and beta)."""
    injection = Injection(0.25, 0.25)
    assert injection.sizes(32, lenders=1) == (25, 6)
    assert [len(injection.lenders(0, step, 4)) for step in range(20)] == [1] * 20
    assert {injection.lenders(0, step, 4)[0] for step in range(100)} == {0, 1, 2, 3}


def test_two_lenders_of_four_give_a_half():
    """40 / (1 + 2 / 2) = 20 of its own, and 10 of each."""
    assert Injection(0.5, 0.5).sizes(40, lenders=2) == (20, 10)


@pytest.mark.parametrize("written", ["selsync(alpha=1.5, beta=0.2)", "selsync(alpha=0.2, beta=-1)"])
def test_parts_are_from_0_to_1(written):
    with pytest.raises(UsageError, match=r"must be from 0 \(nothing is lent\) to 1"):
        REGISTRY.resolve("strategy", written)


def test_what_is_lent_is_not_trained_as_one_process_does():
    agrees = {
        written: REGISTRY.resolve("strategy", f"selsync(delta=0, aggregate=grads{written})").agrees
        for written in ("", ", partition=labels", ", partition=rotated", ", alpha=0.5, beta=0.5")
    }
    assert list(agrees.values()) == ["closely", "closely", "differently", "differently"]
