"""Fully sharded training obeys the laws with every option, and its closed forms are those worked out by hand.

digits smoke is a perceptron 64 -> 16 -> 16 -> 10 (weights and biases), trained by SGD with momentum:

    unit       shapes               rows of a chunk at 4 ranks     elements of it     at 2 ranks
    layers.0   (16, 64) and (16,)   4                              4 * 65 = 260       8 * 65 = 520
    layers.1   (16, 16) and (16,)   4                              4 * 17 = 68        8 * 17 = 136
    head       (10, 16) and (10,)   3 (the last rank has 1)        3 * 17 = 51        5 * 17 = 85
                                                                   sum 379            sum 741
"""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

from contexts import context
from parbench import RunSpec, Session
from parbench.conformance import check_strategy
from parbench.errors import UsageError
from parbench.registry import Registry

REGISTRY = Registry()
PARAMETERS = 16 * 65 + 16 * 17 + 10 * 17


@pytest.fixture(scope="module")
def session():
    with Session(world_size=4) as ranks:
        yield ranks


def strategy(written):
    return REGISTRY.resolve("strategy", written)


def digits():
    return REGISTRY.resolve("workload", "digits").build("smoke", 0, torch.device("meta"), 64)


def variant(session, written, world_size, **settings):
    return session.add(RunSpec(workload="digits", size="smoke", strategy=written, world_size=world_size, **settings))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("written", "world_size"),
    [
        ("hsdp(replicas=2)", 4),
        ("hsdp(replicas=2)", 2),  # a copy on each rank
        ("fsdp(reshard_after_forward=False)", 2),
        ("fsdp(min_parameters=600, prefetch=1)", 2),
    ],
)
def test_it_obeys_the_laws(session, written, world_size):
    verdict = check_strategy(written, world_size, session=session)
    assert verdict.passed, verdict.broken


@pytest.mark.parametrize(
    ("written", "accumulate", "sent"),
    [
        # three units forward and backward, of which three of four ranks' chunks are sent; gradients once
        ("fsdp", 1, {"all_gather": 6 * 379 * 4, "reduce_scatter": 3 * 379 * 4}),
        ("fsdp", 5, {"all_gather": 5 * 6 * 379 * 4, "reduce_scatter": 3 * 379 * 4}),
        ("fsdp(reshard_after_forward=False)", 1, {"all_gather": 3 * 379 * 4, "reduce_scatter": 3 * 379 * 4}),
        ("fsdp(mixed_precision=True)", 1, {"all_gather": 6 * 379 * 2, "reduce_scatter": 3 * 379 * 4}),
        # one of two chunks of each copy, and its gradients averaged over two copies
        ("hsdp", 1, {"all_gather": 2 * 741 * 4, "reduce_scatter": 741 * 4, "all_reduce": 741 * 4}),
        ("hsdp(replicas=1)", 1, {"all_gather": 6 * 379 * 4, "reduce_scatter": 3 * 379 * 4}),
        ("hsdp(replicas=4)", 1, {"all_reduce": Fraction(3, 2) * PARAMETERS * 4}),
    ],
)
def test_four_ranks_send_what_was_worked_out_by_hand(written, accumulate, sent):
    dtype = torch.bfloat16 if "mixed" in written else torch.float32
    assert strategy(written).traffic(digits(), context(4, dtype=dtype, accumulate=accumulate)) == sent


@pytest.mark.parametrize(
    ("written", "rank", "parameters", "momentum"),
    [
        ("fsdp", 0, 379, 379),
        ("fsdp", 3, 379, 260 + 68 + 17),  # one row of the head, in a chunk padded to three
        ("hsdp", 3, 741, 741),
        ("hsdp(replicas=4)", 0, PARAMETERS, PARAMETERS),
    ],
)
def test_four_ranks_hold_what_was_worked_out_by_hand(written, rank, parameters, momentum):
    said = strategy(written).memory(digits(), context(4, rank))
    assert (said.parameters, said.optimizer, said.buffers) == (parameters * 4, momentum * 4, 0)
    assert said.gradients == parameters * 4 * (2 if said.parameters == PARAMETERS * 4 else 1)


@pytest.mark.parametrize(
    ("written", "accumulate", "formula", "sent"),
    [
        ("fsdp", 1, "3(n-1)/n P b", Fraction(9, 4) * 4),
        ("fsdp", 2, "5(n-1)/n P b", Fraction(15, 4) * 4),
        ("fsdp(reshard_after_forward=False)", 1, "2(n-1)/n P b", Fraction(6, 4) * 4),
        ("fsdp(mixed_precision=True)", 1, "2(n-1)/n P c + (n-1)/n P b", Fraction(6, 4) * 2 + Fraction(3, 4) * 4),
        ("hsdp", 1, "3(s-1)/s P b + 2(r-1)/r P b/s", Fraction(3, 2) * 4 + Fraction(1, 2) * 4),
        ("hsdp(replicas=4)", 1, "2(n-1)/n P b", Fraction(6, 4) * 4),
    ],
)
def test_the_textbook_form_follows_the_options(written, accumulate, formula, sent):
    dtype = torch.bfloat16 if "mixed" in written else torch.float32
    quoted = strategy(written).textbook(digits(), context(4, dtype=dtype, accumulate=accumulate))
    assert (quoted.formula, quoted.sent_bytes) == (formula, sent * PARAMETERS)


def test_a_cast_before_the_gather_halves_its_bytes_and_trains_as_autocast_does(session):
    plain, cast = (
        variant(session, written, 2, precision="bf16", accumulate=2)
        for written in ("fsdp", "fsdp(mixed_precision=True)")
    )
    agreement = cast.parity(steps=3)
    assert agreement.passed, agreement.reason
    for rank in cast.inspect():
        # One of two chunks forward and backward, of two micro-batches.
        assert rank.sent == rank.traffic == {"all_gather": 4 * 741 * 2, "reduce_scatter": 741 * 4}
        assert "bf16" in rank.types["communication"]
    assert plain.inspect()[0].sent["all_gather"] == 4 * 741 * 4
    plain.close(), cast.close()


def test_copies_of_shards_send_and_hold_what_was_worked_out_by_hand(session):
    hybrid = variant(session, "hsdp(prefetch=1)", 4, accumulate=2)
    for rank in hybrid.inspect():
        assert rank.sent == {"all_gather": 2 * 2 * 741 * 4, "reduce_scatter": 741 * 4, "all_reduce": 741 * 4}
        assert rank.held["parameters"] == 741 * 4
    hybrid.close()


@pytest.mark.parametrize(
    ("written", "gathers"),
    [
        ("fsdp", 6),  # three blocks, forward and backward
        ("fsdp(min_parameters=300)", 4),  # layers.0 has more; layers.1 has 272 and takes the head with it
        ("fsdp(min_parameters=100000)", 2),
        ("fsdp(min_parameters=300, reshard_after_forward=False)", 2),
    ],
)
def test_blocks_are_wrapped_together_until_they_are_large_enough(session, written, gathers):
    one = variant(session, written, 2)
    # A unit's gradients leave in one message too.
    units = gathers if "reshard" in written else gathers // 2
    assert one.inspect()[0].collectives == gathers + units
    one.close()


def test_gathers_go_out_as_far_ahead_as_asked(session):
    one = variant(session, "fsdp(prefetch=2)", 2)
    assert one.parity(steps=2).passed
    assert one.inspect()[0].sent == {"all_gather": 2 * 741 * 4, "reduce_scatter": 741 * 4}
    one.close()


@pytest.mark.parametrize("written", ["fsdp(offload=True)", "hsdp(replicas=1, offload=True)"])
def test_offload_needs_a_gpu_to_compute(session, written):
    why = variant(session, written, 2).unsupported
    assert "offload keeps shards in host memory while a GPU computes, and ranks compute on cpu here" in why


def test_mixed_precision_needs_a_precision_to_cast_to(session):
    why = variant(session, "fsdp(mixed_precision=True)", 2).unsupported
    assert "which is fp32 here; add --precision bf16" in why


def test_mixed_precision_does_not_cast_batch_norms():
    job = replace(digits(), model=nn.Sequential(nn.BatchNorm1d(64)))
    why = strategy("fsdp(mixed_precision=True)").unsupported(job, context(2, dtype=torch.bfloat16))
    assert "running statistics" in why


def test_there_is_nothing_to_cast_where_a_rank_holds_a_whole_copy():
    why = strategy("hsdp(mixed_precision=True)").unsupported(digits(), context(2, dtype=torch.bfloat16))
    assert "mixed_precision cannot be had without shards" in why


def test_copies_that_do_not_divide_the_ranks_are_impossible():
    why = strategy("hsdp(replicas=3)").impossible(digits(), 4)
    assert "replicas x shards = world size" in why
    assert why.endswith("1, 2, 4")
    assert strategy("hsdp(replicas=7)").impossible(digits(), 24).endswith("4, 6, 8")
    assert strategy("hsdp(replicas=2)").impossible(digits(), 4) is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("fsdp(min_parameters=-1)", "min_parameters must be 0 or more, got -1"),
        ("fsdp(prefetch=-2)", "prefetch must be 0 or more, got -2"),
        ("hsdp(replicas=0)", "replicas must be 1 or more, got 0"),
        ("hsdp(replicas=2, prefetch=-2)", "prefetch must be 0 or more, got -2"),
        ("fsdp(mixed_precision=1)", "mixed_precision must be True or False, given 1"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(written, message):
    with pytest.raises(UsageError, match=message):
        strategy(written)
