"""Hybrids train as one process does, send and hold what they say, say where ranks stand, refuse what cannot be."""

import re

import pytest
import torch

from contexts import context
from parbench import RunSpec, Session, UsageError
from parbench.axes import applied
from parbench.conformance import check_strategy
from parbench.registry import Registry
from parbench_strategies.hybrid._mesh import Mesh
from parbench_strategies.pipelined import boundaries

FOUR = [
    "hybrid(dp=2, tp=2)",
    "hybrid(dp=2, pp=2)",
    "hybrid(tp=2, pp=2)",
    "hybrid(dp=2, tp=2, shard=fsdp)",
    "hybrid(dp=2, pp=2, shard=fsdp)",
]
REGISTRY = Registry()


@pytest.fixture(scope="module")
def session():
    with Session(world_size=8, device="cpu") as ranks:
        yield ranks


def spec(strategy, world_size=4, **changes):
    given = {"workload": "text", "size": "smoke", "global_batch_size": 8, "world_size": world_size, **changes}
    return RunSpec(strategy=strategy, **given)


def trained(session, strategy, world_size=4, steps=3, **changes):
    """Compare with one process and with the closed forms; return what the ranks were seen to do."""
    variant = session.add(spec(strategy, world_size, **changes))
    try:
        assert variant.unsupported is None
        agreement = variant.parity(steps)
        assert agreement.passed, agreement.reason
        seen = variant.inspect()
    finally:
        variant.close()
    for rank, one in enumerate(seen):
        assert not one.unreadable
        if one.traffic is not None:
            assert one.sent == pytest.approx({op: size for op, size in one.traffic.items() if size}), rank
            assert one.held == {kind: one.memory[kind] for kind in one.held}, rank
    return seen


# ---- without ranks


def test_a_mesh_places_neighbours_along_its_last_axis():
    mesh = Mesh(sizes={"pp": 2, "dp": 2, "tp": 2})
    assert mesh.coordinates(6) == {"pp": 1, "dp": 1, "tp": 0}
    assert [mesh.rank(mesh.coordinates(rank)) for rank in range(8)] == list(range(8))
    assert (mesh.along(6, "tp"), mesh.along(6, "dp"), mesh.along(6, "pp")) == ([6, 7], [4, 6], [2, 6])
    assert mesh.along(6, "dp", "tp") == [4, 5, 6, 7]
    assert str(mesh) == "pp 2 x dp 2 x tp 2"


def test_a_mesh_takes_more_axes_and_others():
    mesh = Mesh(sizes={"pp": 2, "ep": 1, "dp": 3, "cp": 2, "tp": 2})
    assert mesh.world_size == 24
    for axis in mesh.sizes:
        for rank in range(24):
            others = mesh.along(rank, axis)
            assert rank in others
            assert {mesh.coordinates(one)[axis] for one in others} == set(range(mesh.sizes[axis]))


def refusal(strategy, world_size, workload="text", size="smoke", batch=32):
    job = REGISTRY.resolve("workload", workload).build(size, 0, torch.device("meta"), batch)
    return REGISTRY.resolve("strategy", strategy).impossible(job, world_size)


@pytest.mark.parametrize(
    ("strategy", "world_size", "said"),
    [
        (
            "hybrid(dp=3)",
            4,
            "dp x tp x pp = world size, but 3 x 1 x 1 = 3 is not 4; nearest that are: dp=4, tp=1, pp=1",
        ),
        ("hybrid", 2, "1 x 1 x 1 = 1 is not 2"),
        ("hybrid(dp=2, tp=2, pp=2)", 4, "= 8 is not 4; nearest that are: dp=2, tp=2, pp=1; dp=2, tp=1, pp=2;"),
        ("hybrid(tp=8)", 8, "must stay whole (heads, or rows), which 8 ranks cannot share equally"),
        ("hybrid(pp=8)", 8, "8 stages, the model has 4 blocks"),
        ("hybrid(pp=2, schedule=interleaved(v=2), microbatches=3)", 2, "multiple of the ranks"),
        ("hybrid(dp=2, pp=2, microbatches=32)", 4, "microbatches=16 or fewer"),
        ("hybrid(dp=2, pp=2, shard=fsdp, schedule=zbv)", 4, "schedule=zbv takes backward in halves"),
        ("hybrid(tp=2, shard=fsdp)", 2, "dp=1 leaves a rank no replica to share with"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_whom_it_concerns(strategy, world_size, said):
    why = refusal(strategy, world_size)
    assert said in why
    assert len(why) <= 400


def test_what_one_family_refuses_another_does_not_care_for():
    assert refusal("hybrid(pp=2, sequence_parallel=True, loss_parallel=True)", 2) is None
    assert refusal("hybrid(dp=2, schedule=zbv, microbatches=64)", 2) is None


def test_degrees_below_one_are_no_degrees():
    with pytest.raises(UsageError, match="tp must be at least 1, got 0"):
        REGISTRY.resolve("strategy", "hybrid(tp=0)")


# text smoke: an embedding, 2 blocks and a head, 32 wide; 32 samples of 32 positions, B T D floats.
BTD = 32 * 32 * 32 * 4


def text(device="meta"):
    return REGISTRY.resolve("workload", "text").build("smoke", 0, torch.device(device), 32)


def closed_forms(strategy, world_size):
    """Return what rank 0 is said to send, the gradients that it holds, and the formula of the textbook."""
    job, ctx = text(), context(world_size)
    found = REGISTRY.resolve("strategy", strategy)
    return found.traffic(job, ctx), found.memory(job, ctx).gradients, found.textbook(job, ctx).formula


def test_bytes_by_hand():
    """Pipelines of 2: activations forward or gradients back over one cut, for a half of the batch each."""
    sent, gradients, formula = closed_forms("hybrid(dp=2, tp=2, pp=2)", 8)
    assert sent["send"] == BTD // 2
    # One block on each rank: four all-reduces of its half of the samples; then what it holds, averaged over two.
    assert sent["all_reduce"] == 4 * BTD // 2 + gradients
    assert formula == "1/p of 4 L all-reduces of B T D: 8(n-1)/n L B T D b + 2 v B/d a + 2(d-1)/d P b/(n p)"


def test_a_stage_is_gathered_once_per_step_however_many_micro_batches_there_are():
    few, many = (closed_forms(f"hybrid(dp=2, pp=2, shard=fsdp, microbatches={count})", 4)[0] for count in (2, 8))
    assert few == many
    assert few["all_gather"] == few["reduce_scatter"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, when it compiles
def test_what_passes_between_blocks_is_known_of_compiled_ones_too():
    compiled = applied(text("cpu"), spec("hybrid(pp=4)", compile=True))
    assert boundaries(compiled, context(4)) == boundaries(text(), context(4))


# ---- live ranks


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", FOUR)
def test_a_language_model_is_spread_trained_and_counted(session, strategy):
    seen = trained(session, strategy)
    stages = {"2+2"} if "pp" in strategy else {"4"}
    assert {one.notes["stages"] for one in seen} == stages


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", FOUR)
def test_every_law_holds(session, strategy):
    verdict = check_strategy(strategy, 4, session=session)
    assert verdict.passed, verdict.broken
    assert [f.law for f in verdict.findings if f.outcome == "not applicable"] == []


def test_three_axes_at_once(session):
    seen = trained(session, "hybrid(dp=2, tp=2, pp=2)", 8, steps=2)
    assert [one.notes["coordinates"] for one in seen] == [
        f"pp {pp}, dp {dp}, tp {tp}" for pp in range(2) for dp in range(2) for tp in range(2)
    ]
    assert {one.notes["mesh"] for one in seen} == {"pp 2 x dp 2 x tp 2"}
    assert {one.notes["stages"] for one in seen} == {"2+2"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        ("hybrid(dp=2, tp=2, shard=fsdp, sequence_parallel=True, loss_parallel=True)", {"precision": "bf16"}),
        ("hybrid(dp=2, pp=2, shard=fsdp)", {"accumulate": 2}),
        ("hybrid(tp=2, pp=2, schedule=zb-h1)", {"recompute": "full"}),
        ("hybrid(tp=2, pp=2, schedule=interleaved(v=2), sequence_parallel=True, loss_parallel=True)", {}),
        ("hybrid(dp=2, pp=2, shard=fsdp, schedule=interleaved(v=2))", {}),
        ("hybrid(pp=4, microbatches=2)", {}),  # fewer micro-batches than stages
        ("hybrid(tp=2, pp=2, split=time)", {}),
    ],
)
def test_axes_schedules_and_options(session, strategy, changes):
    trained(session, strategy, steps=1, **changes)


def test_backward_in_halves_is_refused_where_recomputation_does_not_go_with_it(session):
    for strategy in ("hybrid(tp=2, pp=2, schedule=zb-h1)", "hybrid(dp=2, pp=2, schedule=zbv)"):
        with pytest.raises(UsageError, match="takes backward in halves"):
            session.add(spec(strategy, recompute="selective")).parity(1)


def test_what_is_impossible_never_reaches_the_ranks(session):
    with pytest.raises(UsageError, match=re.escape("dp x tp x pp = world size")):
        session.add(spec("hybrid(dp=3)"))
