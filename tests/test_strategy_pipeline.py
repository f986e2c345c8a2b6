"""Pipelines: any schedule trains as one process does, sends and holds what it says, and never hangs."""

import re
from itertools import pairwise

import pytest
import torch
from torch import nn

from contexts import context
from parbench import RunSpec, Session, UsageError
from parbench.api import Batch, Job
from parbench.conformance import check_strategy
from parbench.registry import Registry
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._split import balanced, from_cuts
from parbench_strategies.pipelined._weights import weights as weights_of

# One of every kind: flush, alternating, chunks in a row, chunks in a V, halves of backward.
SCHEDULES = ["gpipe", "1f1b", "interleaved(v=2)", "zb-h1", "zbv", "dualpipev"]


@pytest.fixture(scope="module")
def session():
    with Session(world_size=4) as ranks:
        yield ranks


def spec(strategy, *, world_size=2, **changes):
    return RunSpec(**{"workload": "text", "strategy": strategy, "size": "smoke", "world_size": world_size} | changes)


def measured(session, strategy, **changes):
    """Return the agreement of a pipeline, and what its ranks were seen to do."""
    variant = session.add(spec(strategy, **changes))
    try:
        assert variant.unsupported is None
        agreement = variant.parity(3)
        variant.round(2)
        return agreement, variant.inspect()
    finally:
        variant.close()


@pytest.mark.nightly
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_kind_of_schedule_passes_the_laws(session, schedule):
    verdict = check_strategy(f"pipeline(schedule={schedule})", 2, session=session)
    assert verdict.passed, verdict.broken


# text smoke: an embedding, 2 blocks and a head; 8 sequences of 16 to 32 tokens, activations of B T D floats.
@pytest.mark.parametrize(
    ("strategy", "world_size", "stages"),
    [
        ("pipeline(schedule=1f1b)", 2, "2+2"),
        ("pipeline(schedule=1f1b)", 4, "1+1+1+1"),
        ("pipeline(schedule=zb-h2, microbatches=8)", 4, "1+1+1+1"),
        ("pipeline(schedule=zbv)", 2, "1+1+1+1"),
        ("pipeline(schedule=gpipe, replicate=2)", 4, "2+2"),
        ("pipeline(cuts=[1])", 2, "1+3"),
        ("pipeline(microbatches=3, cuts=[3])", 2, "3+1"),
    ],
)
def test_a_language_model_is_cut_trained_and_counted(session, strategy, world_size, stages):
    agreement, seen = measured(session, strategy, world_size=world_size)
    assert agreement.passed, agreement.reason
    for rank, one in enumerate(seen):
        assert one.sent == pytest.approx({op: size for op, size in one.traffic.items() if size}), rank
        assert one.held == {kind: one.memory[kind] for kind in one.held}, rank
        assert one.notes["stages"] == stages


def test_bytes_over_a_cut_are_those_of_the_activations_and_their_gradients(session):
    _, seen = measured(session, "pipeline(cuts=[2])", workload="gpt")
    # gpt smoke: a batch of 8 samples of 32 tokens, 32 wide, in fp32; forward on one side, back on the other.
    assert [one.sent for one in seen] == [{"send": 8 * 32 * 32 * 4.0}] * 2


@pytest.mark.parametrize(
    ("schedule", "microbatches", "live"),
    [
        # GPipe holds all M; 1F1B holds P-i on rank i (Narayanan et al. 2021, 2.2.1); ZB-H1 the same (Qi et al. 2024).
        ("gpipe", 8, [8, 8, 8, 8]),
        ("1f1b", 8, [4, 3, 2, 1]),
        ("dapple-pa", 8, [4, 3, 2, 1]),
        ("dapple-pb", 8, [7, 5, 3, 1]),
        ("zb-h1", 8, [4, 4, 4, 4]),
    ],
)
def test_micro_batches_that_are_live_are_as_many_as_the_papers_say(session, schedule, microbatches, live):
    _, seen = measured(session, f"pipeline(schedule={schedule}, microbatches={microbatches})", world_size=4)
    assert [one.notes["peak live micro-batches"] for one in seen] == live


@pytest.mark.nightly
def test_tied_embeddings_on_two_ranks_stay_one_parameter(session):
    verdict = check_strategy("pipeline(schedule=gpipe, microbatches=3)", 4, session=session)
    assert verdict.passed, verdict.broken
    assert [f.outcome for f in verdict.findings if f.law.endswith("tied parameters")] == ["holds"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "precision"), [({"recompute": "full"}, "fp32"), ({"accumulate": 2}, "fp32"), ({}, "bf16")]
)
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_axes_work_with_pipelines(session, schedule, changes, precision):
    agreement, seen = measured(session, f"pipeline(schedule={schedule})", precision=precision, **changes)
    assert agreement.passed, agreement.reason
    assert all(one.sent == one.traffic for one in seen)


def test_measured_time_decides_the_cuts_on_all_ranks_alike(session):
    agreement, seen = measured(session, "pipeline(split=time)")
    assert agreement.passed, agreement.reason
    sizes = {one.notes["stages"] for one in seen}
    assert len(sizes) == 1
    assert sum(map(int, sizes.pop().split("+"))) == 4


@pytest.mark.parametrize(
    ("strategy", "world_size", "said"),
    [
        ("pipeline(replicate=3)", 4, "replicate can be 1, 2, 4"),
        ("pipeline(schedule=interleaved(v=4))", 2, "8 stages"),
        ("pipeline(microbatches=64)", 2, "microbatches=32 or fewer"),
        ("pipeline(schedule=interleaved(v=2), microbatches=3)", 2, "multiple of the ranks"),
        ("pipeline(cuts=[9])", 2, "cuts=[9]"),
        ("pipeline(microbatches=0)", 2, "1 to 4096"),
        ("pipeline(cuts=[1], split=memory)", 2, "leave out split"),
        ("pipeline(schedule=2f2b)", 2, "schedule"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(session, strategy, world_size, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        session.add(spec(strategy, world_size=world_size))


def test_replicas_of_gpipe_exchange_after_all_is_flushed_and_nobody_waits_for_ever(session):
    """All backwards of a chunk end one after the other on all ranks: each then waits for replicas of its own stage."""
    agreement, _ = measured(session, "pipeline(schedule=gpipe, replicate=2, microbatches=3)", world_size=4)
    assert agreement.passed, agreement.reason


STUCK = """from parbench.schedule import Action, Paper, Schedule

class Stuck(Schedule):
    \"""Rank 0 begins with the last micro-batch and rank 1 with the first.\"""

    name = "stuck"
    paper = Paper("Stuck", "https://example.org")

    def actions(self, rank, ranks, microbatches):
        for k in range(microbatches) if rank else reversed(range(microbatches)):
            yield Action("F", k)
            yield Action("B", k)

    def peak_live(self, rank, ranks, microbatches):
        return 1
"""


def test_a_schedule_that_would_keep_ranks_waiting_for_ever_is_refused(tmp_path):
    plugin = tmp_path / "stuck.py"
    plugin.write_text(STUCK)
    strategy = Registry([plugin]).resolve("strategy", "pipeline(schedule=stuck, microbatches=2)")
    job = Registry().resolve("workload", "text").build("smoke", 0, torch.device("meta"), 8)
    assert "rank 0 waits for ever before B of micro-batch 1" in strategy.impossible(job, 2)


def test_timing_blocks_draws_no_random_numbers_and_leaves_no_statistics():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), nn.BatchNorm1d(4))
    job = Job(
        model=model,
        loss=lambda outputs, batch: outputs.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=lambda step: Batch(inputs=torch.ones(8, 4), targets=torch.ones(8)),
        unit="samples",
        units_per_sample=1,
        blocks=("0", "1"),
    )
    alone = context(1)
    before, state = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    assert all(seconds > 0 for seconds in weights_of("time", job, alone, [], 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_splits_are_balanced_and_lose_no_block():
    # 30 layers on 4 stages are 30 layers: a well-known trainer once built 28 of them.
    assert balanced([1] * 30, 4) == [8, 8, 7, 7]
    assert balanced([5, 1, 1, 1, 1], 2) == [1, 4]
    assert balanced([1, 1, 1, 9], 2) == [3, 1]
    assert from_cuts([2, 3], 7, 3) == [2, 1, 4]
    for weights in ([3, 1, 4, 1, 5, 9, 2, 6], [1, 100, 1], [2, 2, 2, 2]):
        for stages in range(1, len(weights) + 1):
            sizes = balanced(weights, stages)
            assert (sum(sizes), len(sizes)) == (len(weights), stages)
            assert heaviest(weights, sizes) == min(heaviest(weights, other) for other in all_splits(weights, stages))


def heaviest(weights, sizes):
    edges = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    return max(sum(weights[a:b]) for a, b in pairwise(edges))


def all_splits(weights, stages, first=0):
    if stages == 1:
        yield [len(weights) - first]
        return
    for size in range(1, len(weights) - first - stages + 2):
        for rest in all_splits(weights, stages - 1, first + size):
            yield [size, *rest]


def test_tensors_that_skip_stages_travel_with_what_passes_through_them():
    """Skips relayed with the activations, as one message per cut: 2 samples of (3, 4) floats beside 5 halves."""
    x = torch.arange(24.0).view(2, 3, 4)
    skip = torch.arange(10.0).view(2, 5).half()
    boundary = Boundary.of((x, skip))
    assert (boundary.shape, boundary.dtype, boundary.bytes_per_sample) == ((17,), torch.float32, 68)
    back = boundary.unpack(boundary.pack((x, skip)))
    assert [(t.shape, t.dtype) for t in back] == [(x.shape, x.dtype), (skip.shape, skip.dtype)]
    assert torch.equal(back[0], x)
    assert torch.equal(back[1], skip)
    with pytest.raises(ValueError, match="floating-point"):
        Boundary.of((x, skip.long()))
