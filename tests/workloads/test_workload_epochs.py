"""The order of samples: epochs, uneven last batches, random access."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parbench.errors import UsageError
from parbench.registry import Registry
from parbench.workloads._data import Epochs, generator, split


@given(st.integers(1, 60), st.data())
def test_an_epoch_visits_every_sample_once_and_its_last_batch_is_what_is_left(
    samples: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, samples))
    epoch = data.draw(st.integers(0, 5))
    order = Epochs(samples, size, seed=7)
    steps = -(-samples // size)
    batches = [order.indices(epoch * steps + k) for k in range(steps)]
    assert sorted(torch.cat(batches).tolist()) == list(range(samples))
    assert [len(b) for b in batches[:-1]] == [size] * (steps - 1)
    assert len(batches[-1]) == samples - size * (steps - 1)


def test_epochs_and_seeds_differ_and_access_is_random() -> None:
    order, again, other = Epochs(50, 20, 1), Epochs(50, 20, 1), Epochs(50, 20, 2)
    assert [len(order.indices(k)) for k in range(6)] == [20, 20, 10, 20, 20, 10]
    assert not torch.equal(order.indices(0), order.indices(3))
    assert not torch.equal(order.indices(0), other.indices(0))
    for step in (5, 0, 4, 1, 3, 2):
        assert torch.equal(order.indices(step), again.indices(step))


@pytest.mark.parametrize("name", ["digits", "digit-rows", "text", "lstm", "matrix-recovery"])
def test_workloads_with_epochs_say_how_many_steps_one_has(name: str) -> None:
    job = Registry().resolve("workload", name).build("smoke", 0, torch.device("cpu"), 15)
    assert job.steps_per_epoch is not None
    sizes = [job.batch(step).samples for step in range(2 * job.steps_per_epoch)]
    one, other = sizes[: job.steps_per_epoch], sizes[job.steps_per_epoch :]
    assert one == other
    assert set(one[:-1]) == {15}
    assert 1 <= one[-1] <= 15


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match=r"global batch size 51 .* allowed: 1 to 50"):
        Epochs(50, 51, 0)


def test_seeds_that_differ_in_high_bits_only_give_different_numbers() -> None:
    low, high = (torch.rand(4, generator=generator(seed, "x")) for seed in (5, 5 + 2**40))
    assert not torch.equal(low, high)


def test_the_held_out_fifth_is_disjoint_and_independent_of_any_seed() -> None:
    train, held_out = split(101)
    assert (len(train), len(held_out)) == (81, 20)
    assert sorted(train.tolist() + held_out.tolist()) == list(range(101))
    assert torch.equal(held_out, split(101)[1])
