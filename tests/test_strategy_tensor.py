"""Tensor parallelism refuses what it cannot cut, and its closed form is the textbook's for a transformer."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from parbench import RunSpec, Session
from parbench.api import Comm, RankContext
from parbench.registry import Registry

REGISTRY = Registry()
TENSOR = REGISTRY.resolve("strategy", "tensor")


def context(world_size):
    return RankContext(
        rank=0,
        local_rank=0,
        world_size=world_size,
        device=torch.device("cpu"),
        dtype=torch.float32,
        comm=Comm(None, 0, world_size),
        accumulate=1,
        generator=torch.Generator(),
    )


def gpt(size="smoke", batch=8):
    return REGISTRY.resolve("workload", "gpt").build(size, 0, torch.device("cpu"), batch)


def test_heads_that_cannot_be_shared_are_refused_with_the_numbers_that_can():  # heads 12 at degree 8
    job = gpt("small")
    heads = {name: 3 for name in job.whole}
    refused = TENSOR.unsupported(replace(job, whole={k: 32 for k in heads}), context(3))
    assert "numbers of ranks that can: 2, 4" in refused


def test_four_heads_on_two_ranks_are_fine():
    assert TENSOR.unsupported(gpt(), context(2)) is None


def test_a_workload_without_shardings_is_refused():
    assert "declares no shardings" in TENSOR.unsupported(replace(gpt(), shardings={}), context(2))


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_closed_form_is_four_all_reduces_per_layer(world_size):
    """B T D floats forward and backward, after attention and after the perceptron; here B=8, T=32, D=32, 2 layers."""
    job = gpt("smoke", batch=8)
    textbook = 2 * 4 * (8 * 32 * 32) * 4 * Fraction(2 * (world_size - 1), world_size)
    assert TENSOR.traffic(job, context(world_size)) == {"all_reduce": textbook}


def test_a_refusal_is_a_record_not_a_failure():
    with Session(world_size=3) as session:
        variant = session.add(RunSpec(workload="gpt", strategy="tensor", size="smoke", world_size=3))
        assert "cannot share equally" in variant.unsupported
