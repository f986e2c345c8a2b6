"""Every family at 2 and 4 ranks: bytes equal closed forms, parts sum to the step, little is in no part. Nightly."""

import math

import pytest

from parbench import RunSpec, Session
from parbench.traced import MOST_FILE_BYTES, take

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_orphans")]


TWO = (
    *("ddp", "no_overlap", "central", "horovod_like", "zero1", "zero2", "fsdp", "tensor", "pipeline"),
    *("tensor(sequence_parallel=true)", "pipeline(schedule=zb-h1)", "hybrid(pp=2)", "ddp(sync_every=2)"),
    *("powersgd(rank=2)", "topk", "replicated", "replicated(collective=ring_socket)"),
    *("dear", "p3", "pipe_sgd", "mgwfbp"),
)
FOUR = (
    *("ddp", "horovod_like", "zero2", "fsdp", "tensor", "pipeline", "powersgd(rank=2)", "replicated(collective=tree)"),
    *("hsdp(replicas=2)", "tensor(degree=2)", "pipeline(replicate=2)", "hybrid(pp=2, tp=2)"),
    *("hybrid(dp=2, pp=2, shard=fsdp)", "replicated(collective=hierarchical)", "p3"),
)


@pytest.fixture(scope="module")
def session(request, mark):
    """Live ranks, as many as the test's parameter says; 2 unless it says."""
    with Session(world_size=getattr(request, "param", 2), timeout_s=60) as session:
        yield session


@pytest.mark.parametrize(
    ("session", "name"), [*((2, one) for one in TWO), *((4, one) for one in FOUR)], indirect=["session"]
)
def test_a_family_sends_what_it_says_and_its_step_adds_up(session, tmp_path, name):
    ranks = session.ranks.world_size
    variant = session.add(RunSpec(workload="text", size="smoke", strategy=name, world_size=ranks))
    assert variant.unsupported is None
    variant.round(2 * variant.period)
    inspected = variant.inspect()
    found = take(variant, 3, tmp_path).found
    variant.close()
    assert found.reason is None
    assert found.steps == 3 if variant.period == 1 else found.steps % variant.period == 0
    for one, counted in zip(found.ranks, inspected, strict=True):
        assert one.bytes_per_step == pytest.approx(counted.traffic, rel=1e-12)
        assert math.fsum(one.parts.values()) == pytest.approx(one.step_s, rel=0.02)
        assert one.recognised == one.candidates
        assert one.overlap is None or 0 <= one.overlap <= 1
        assert one.notes == ()
    # Who sends whom: what all ranks send is what all get, and nobody sends to itself.
    sent = [sum(row) for row in found.sent]
    expected = [found.steps * sum(one.bytes_per_step.values()) for one in found.ranks]
    assert sent == pytest.approx(expected, rel=1e-12)
    assert all(found.sent[rank][rank] == 0 for rank in range(ranks))


@pytest.mark.parametrize("name", ["ddp", "fsdp", "tensor", "pipeline"])
def test_nine_tenths_of_a_step_are_in_a_part(session, tmp_path, name):
    variant = session.add(RunSpec(workload="text", strategy=name))
    variant.round(3)
    # A neighbour that takes the core between two operators is in no part either: the best of three counts.
    found = [take(variant, 3, tmp_path / str(k)).found for k in range(3)]
    variant.close()
    shares = [max(one.unattributed_s / one.step_s for one in each.ranks) for each in found]
    assert min(shares) < 0.1, f"{name}: {shares}"


def test_a_trace_of_ten_thousand_steps_stays_small(session, tmp_path):
    variant = session.add(RunSpec(workload="digits", size="smoke", strategy="ddp"))
    variant.round(5)
    found = take(variant, 10_000, tmp_path)
    variant.close()
    assert found.found.reason is None
    assert 3 < found.found.steps < 10_000
    assert "10000 steps were asked for" in found.found.shortened
    assert 2**20 < sum(found.found.files.values()) < MOST_FILE_BYTES < 200 * 10**6
    assert [one.collectives for one in found.found.ranks] == [found.found.steps] * 2
