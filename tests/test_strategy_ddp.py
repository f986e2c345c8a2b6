"""DDP's options change what is sent when and where gradients live, not what is computed, but for sync_every."""

from fractions import Fraction
from pathlib import Path

import pytest
import torch

from contexts import context
from parbench import RunSpec, Session, UsageError
from parbench.conformance import check_strategy
from parbench.registry import Registry

PLUGIN = Path(__file__).parent / "sleepy.py"
REGISTRY = Registry([PLUGIN])
STEPS = 8
ALL_GRADIENTS = 4 * 288  # bytes: four blocks of a weight of 8 x 8 and a bias of 8
AWKWARD = "sleepy(awkward=True)"
BOTH = "ddp(static_graph=True, gradient_as_bucket_view=True, sync_every=2)"


@pytest.fixture(scope="module")
def session():
    with Session(world_size=3, plugins=[PLUGIN]) as ranks:
        yield ranks


def spec(strategy, workload="sleepy", world_size=2, **changes):
    return RunSpec(workload=workload, strategy=strategy, size="smoke", world_size=world_size, **changes)


def run(session, steps, *arguments, **changes):
    variant = session.add(spec(*arguments, probes=("sleepy",), **changes))
    try:
        variant.round(3 * variant.period)  # a static graph has settled its buckets in the third
        return variant.round(steps)
    finally:
        variant.close()


def seen(round_, name, rank=0):
    return next(one.values for one in round_.ranks[rank].series if one.name == name)


def job(workload="sleepy"):
    return REGISTRY.resolve("workload", workload).build("smoke", 0, torch.device("cpu"), 8)


# ---- laws


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("strategy", "world_size"),
    [
        ("ddp(static_graph=True)", 2),
        ("ddp(gradient_as_bucket_view=True)", 2),
        ("ddp(sync_every=2)", 2),
        ("ddp(process_groups=3, bucket_cap_mb=0.001)", 3),
        ("ddp(static_graph=True, gradient_as_bucket_view=True, sync_every=2, process_groups=2)", 3),
    ],
)
def test_it_obeys_the_laws(session, strategy, world_size):
    verdict = check_strategy(strategy, world_size, session=session)
    assert verdict.passed, verdict.broken
    assert [f.law for f in verdict.findings if f.outcome == "not applicable"] == []


# ---- the mean over steps


def alone(workload, every):
    """Train one process on the mean of the mean losses of `every` batches; return the loss of each batch."""
    mine = job(workload)
    optimizer, losses = mine.optimizer(mine.model.parameters()), []
    for start in range(0, STEPS, every):
        optimizer.zero_grad(set_to_none=True)
        batches = [mine.batch(start + k) for k in range(every)]
        means = [mine.loss(mine.model(batch.inputs), batch) / batch.samples for batch in batches]
        (sum(means) / every).backward()
        optimizer.step()
        losses += [float(mean.detach()) for mean in means]
    return losses


@pytest.mark.parametrize("strategy", ["ddp(sync_every=2)", "ddp(sync_every=4)", BOTH])
@pytest.mark.parametrize(
    ("workload", "world_size", "accumulate"), [("sleepy", 2, 1), (AWKWARD, 2, 1), (AWKWARD, 3, 2), ("sleepy", 1, 2)]
)
def test_a_period_is_one_step_on_the_mean_of_its_batches(session, strategy, workload, world_size, accumulate):
    if workload == AWKWARD and strategy == BOTH:
        workload = "sleepy"  # a static graph uses the same parameters in every step
    variant = session.add(spec(strategy, workload, world_size, accumulate=accumulate))
    # A round may end amid a period, which the next one goes on with.
    losses = (*variant.round(3).losses, *variant.round(STEPS - 3).losses)
    assert losses == pytest.approx(alone(workload, variant.period), rel=1e-6)
    variant.close()


def test_the_reference_is_not_what_ddp_does_every_step(session):
    """The comparison above must tell a period from a step."""
    assert alone("sleepy", 2) != pytest.approx(alone("sleepy", 1), rel=1e-3)


def test_only_a_period_of_more_than_a_step_trains_differently():
    agrees = [REGISTRY.resolve("strategy", f"ddp(sync_every={k})").agrees for k in (1, 2)]
    assert agrees == ["closely", "differently"]
    assert [REGISTRY.resolve("strategy", f"ddp(sync_every={k})").period for k in (1, 5)] == [1, 5]


# ---- groups


def test_buckets_go_round_the_groups(session):
    """A bucket takes a weight (256 bytes); three groups get their turn in every step, with one group's results."""
    one = run(session, 2, "ddp(bucket_cap_mb=0.0002)", world_size=3)
    three = run(session, 2, "ddp(bucket_cap_mb=0.0002, process_groups=3)", world_size=3)
    assert (set(seen(one, "groups")), set(seen(three, "groups"))) == ({1}, {3})
    assert seen(one, "all_reduces") == seen(three, "all_reduces")
    assert three.losses == pytest.approx(one.losses, rel=1e-6)


def test_one_rank_among_others_trains_bare(session):
    found = run(session, 2, "ddp(process_groups=2)", world_size=1)
    assert seen(found, "all_reduces") == (0, 0)


# ---- closed forms against counts


@pytest.mark.parametrize("strategy", ["ddp", "ddp(sync_every=3)", "ddp(static_graph=True)", "ddp(process_groups=2)"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_bytes_with_buffers_are_those_of_the_closed_form(session, strategy, accumulate):
    found = run(session, 6, strategy, world_size=3, accumulate=accumulate)
    for rank in range(3):
        closed = REGISTRY.resolve("strategy", strategy).traffic(job(), context(3, rank))
        assert sum(seen(found, "all_reduce_bytes", rank)) == pytest.approx(6 * float(closed["all_reduce"]))
        assert sum(seen(found, "broadcast_bytes", rank)) == pytest.approx(6 * float(closed.get("broadcast", 0)))


def test_marks_of_unused_parameters_are_in_the_closed_form(session):
    """Eight weights and biases, `sometimes` and `never`: ten marks of four bytes, twice each at 3 ranks times 2/3."""
    found = run(session, 3, "ddp", AWKWARD, world_size=3)
    closed = REGISTRY.resolve("strategy", "ddp").traffic(job(AWKWARD), context(3))
    assert closed["all_reduce"] == Fraction(4, 3) * (ALL_GRADIENTS + 4 + 12 + 10 * 4)
    assert seen(found, "all_reduce_bytes") == pytest.approx([float(closed["all_reduce"])] * 3)


@pytest.mark.parametrize(
    ("strategy", "world_size", "copies"),
    [("ddp", 2, 2), ("ddp(gradient_as_bucket_view=True)", 2, 1), ("ddp", 1, 1), ("ddp(sync_every=2)", 2, 2)],
)
def test_gradients_are_held_once_as_views_and_else_twice(strategy, world_size, copies):
    memory = REGISTRY.resolve("strategy", strategy).memory(job(), context(world_size))
    assert memory.gradients == copies * ALL_GRADIENTS


def test_the_textbook_spreads_the_all_reduce_over_the_period():
    textbook = REGISTRY.resolve("strategy", "ddp(sync_every=4)").textbook(job(), context(2))
    assert (textbook.formula, textbook.sent_bytes) == ("2(n-1)/n P b / k", Fraction(ALL_GRADIENTS, 4))


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("bucket_cap_mb=0", "bucket_cap_mb must be above 0"),
        ("sync_every=0", "sync_every must be at least 1"),
        ("process_groups=0", "process_groups must be from 1 to 64"),
        ("process_groups=65", "process_groups must be from 1 to 64"),
        ("static_graph=1", "static_graph must be True or False"),
        ("gradient_as_bucket_view=yes", "gradient_as_bucket_view must be True or False"),
        ("sync_every=1.5", "sync_every must be a whole number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        REGISTRY.resolve("strategy", f"ddp({arguments})")
