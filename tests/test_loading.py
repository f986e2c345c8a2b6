"""Batches made ahead: in order, from several threads, with the time that steps waited for theirs."""

import threading

import pytest
import torch

from parbench import Session
from parbench.job import Batch
from parbench.loading import Loader
from parbench.spec import RunSpec
from parbench.workloads._data import Epochs


def numbered(step):
    return Batch(inputs=torch.full((2,), float(step)), targets=torch.zeros(2))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_step_gets_its_own_batch_in_any_order(workers):
    loader = Loader(numbered, workers)
    try:
        asked = [0, 1, 2, 3, 7, 8, 2, 0, 1]
        assert [loader(step).inputs[0].item() for step in asked] == asked
        assert len(loader.waited().values) == len(asked)
        loader.begin()
        loader(5)
        assert len(loader.waited().values) == 1
    finally:
        loader.close()


def test_workers_make_the_next_batches_while_a_step_is_taken():
    made, ready = [], threading.Event()

    def make(step):
        made.append(step)
        if step == 4:
            ready.set()
        return numbered(step)

    loader = Loader(make, 2)
    try:
        loader(0)
        assert ready.wait(10)  # nobody has asked for 1 to 4
    finally:
        loader.close()
    assert sorted(made) == [0, 1, 2, 3, 4]


def test_no_batch_is_made_beyond_the_end_of_a_round():
    """It would be made while others are timed, and be there for nothing when this goes on."""
    made = []

    def make(step):
        made.append(step)
        return numbered(step)

    loader = Loader(make, 2)
    try:
        loader.begin(until=3)
        assert [loader(step).inputs[0].item() for step in range(3)] == [0, 1, 2]
    finally:
        loader.close()  # waits for what was begun
    assert sorted(made) == [0, 1, 2]


def test_what_making_raises_reaches_the_step():
    def make(step):
        raise OSError("the disk is gone")

    for workers in (0, 1):
        loader = Loader(make, workers)
        with pytest.raises(OSError, match="the disk is gone"):
            loader(0)
        loader.close()


def test_epochs_are_the_same_from_several_threads():
    order = Epochs(100, 30, seed=1)
    alone = [Epochs(100, 30, seed=1).indices(step) for step in range(40)]
    found = [None] * 40

    def take(first):
        for step in range(first, 40, 4):
            found[step] = order.indices(step)

    threads = [threading.Thread(target=take, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(map(torch.equal, found, alone))


def test_a_slow_source_shows_as_data_time_and_changes_no_loss():
    with Session(world_size=1) as ranks:

        def round_of(**changes):
            spec = RunSpec(workload="digits", strategy="single", size="smoke", world_size=1, device="cpu", **changes)
            variant = ranks.add(spec)
            variant.round(1)
            done = variant.round(4)
            variant.close()
            return done, {s.name: s.values for s in done.ranks[0].series}

        plain, without = round_of()
        slow, waited = round_of(data_delay_s=0.02)
        ahead, hidden = round_of(data_workers=2)
    assert "data_s_per_step" not in without
    assert plain.losses == slow.losses == ahead.losses
    assert min(waited["data_s_per_step"]) >= 0.02
    assert slow.wall_s >= 4 * 0.02
    assert len(hidden["data_s_per_step"]) == 4
