"""Storages followed through a step, with sizes worked out by hand."""

import torch
from torch import nn

from parbench.live_bytes import LiveBytes

MIB = 2**20


def mebibytes(count):
    return torch.ones(count * MIB // 4)


def kinds(live):
    return {kind: size for kind, size in live.at_peak().items() if size}


def test_what_is_alive_at_once_counts_and_what_has_gone_does_not():
    with LiveBytes({}) as live:
        first = mebibytes(4)
        del first
        second = mebibytes(2)
        third = second + 1
    assert kinds(live) == {"activations": 4 * MIB}
    del third
    with LiveBytes({}) as live:
        mebibytes(1)
        mebibytes(1)
    assert kinds(live) == {"activations": MIB}


def test_views_of_one_storage_count_once():
    with LiveBytes({}) as live:
        whole = mebibytes(2)
        parts = whole.view(2, -1).unbind()
        sum(part.sum() for part in parts)
    assert MIB * 2 <= live.at_peak()["activations"] < MIB * 2 + 1024


def test_a_training_step_is_sorted_by_whose_it_is():
    """W of 1 MiB; SGD with momentum keeps as much. Backward makes the gradient, x of 1 MiB was there before."""
    layer = nn.Linear(512, 512, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.ones(512, 512)

    def step():
        optimizer.zero_grad()
        layer(inputs).sum().backward()
        optimizer.step()

    step()
    state = [x for kept in optimizer.state.values() for x in kept.values()]
    with LiveBytes({"parameters": layer.parameters(), "optimizer": state}) as live:
        step()
    found = live.at_peak()
    assert (found["parameters"], found["optimizer"], found["gradients"]) == (MIB, MIB, MIB)
    assert MIB <= found["other"] < MIB + 1024  # the inputs


def test_a_storage_that_is_emptied_and_filled_again_counts_while_it_is_full():
    """As a strategy does that gathers parameters for a block and lets go of them."""
    gathered = mebibytes(4)
    with LiveBytes({}) as live:
        gathered.add_(1)
        gathered.untyped_storage().resize_(0)
        torch.ones(1)
        while_empty = mebibytes(3)
        del while_empty
        gathered.untyped_storage().resize_(4 * MIB)
        gathered.add_(1)
    found = live.at_peak()
    assert found["other"] == 4 * MIB
    assert found["activations"] < 1024  # not the 3 MiB, which were there while it was empty


def test_gradients_that_are_views_of_buckets_are_gradients():
    layer = nn.Linear(256, 256, bias=False)
    bucket = torch.zeros(256 * 256)
    layer.weight.grad = bucket.view(256, 256)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with LiveBytes({"parameters": layer.parameters()}) as live:
        bucket.zero_()
        optimizer.step()
    assert kinds(live) == {"parameters": 256 * 1024, "gradients": 256 * 1024}
