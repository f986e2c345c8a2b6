"""Replicated training is one process's at every point of the engine's space, overlaps, and ends when ranks fail."""

import itertools
import time
from pathlib import Path

import pytest
import torch

from amounts import amount
from contexts import context
from parbench import RankFailed, RunSpec, Session, UsageError
from parbench.conformance import check_strategy
from parbench.registry import Registry

HERE = Path(__file__).parent
PLUGINS = [HERE / "sleepy.py", HERE / "exchanges.py", HERE / "forgetful.py"]
REGISTRY = Registry(PLUGINS)
FUSIONS = ("per_tensor", "merged", "buckets(mb=0.001)", "mgwfbp", "optimal", "lazy", "searched", "slices(elements=30)")
WORLD_SIZES = amount((2, 3, 4), in_ci=(3,))
COLLECTIVES = (
    "native",
    "ring",
    "ring_socket",
    "halving_doubling",
    "tree",
    "hierarchical",
    "reduce_scatter_all_gather",
    "parameter_server(servers=2, chunk=100)",
    "broadcast_chain(piece=64)",
)


@pytest.fixture(scope="module")
def session():
    with Session(world_size=4, plugins=PLUGINS) as ranks:
        yield ranks


def spec(strategy, workload="exchanges", world_size=3, **changes):
    return RunSpec(workload=workload, strategy=strategy, size="smoke", world_size=world_size, **changes)


def run(session, steps, *arguments, **changes):
    variant = session.add(spec(*arguments, **changes))
    try:
        return variant.round(steps)
    finally:
        variant.close()


# ---- laws


@pytest.mark.parametrize(
    ("arguments", "world_size", "left_out"),
    [
        ("fusion=buckets(mb=0.001), collective=ring", 3, []),
        ("fusion=shuffled, compressor=largest", 2, ["sends the bytes it says"]),
    ],
)
def test_it_obeys_the_laws(session, arguments, world_size, left_out):
    verdict = check_strategy(f"replicated({arguments})", world_size, session=session)
    assert verdict.passed, verdict.broken
    laws = [f.law for f in verdict.findings if f.outcome == "not applicable"]
    assert [law for law in laws if not law.startswith(("agrees", "same seed"))] == left_out


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize(
    "point", [*(f"fusion={one}" for one in FUSIONS), *(f"fusion=lazy, collective={one}" for one in COLLECTIVES)]
)
def test_every_fusion_rule_and_every_collective_obeys_the_laws(session, point, world_size):
    verdict = check_strategy(f"replicated({point})", world_size, session=session)
    assert verdict.passed, verdict.broken


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_every_fusion_rule_with_every_collective_gives_the_exact_average(session, world_size):
    right = run(session, 5, "no_overlap", world_size=world_size).losses
    for fusion, collective in itertools.product(FUSIONS, COLLECTIVES):
        point = f"replicated(fusion={fusion}, collective={collective})"
        assert run(session, 5, point, world_size=world_size).losses == right, point


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments",
    ["compressor=fp16", "compressor=largest", "compressor=fp16, collective=tree", "overlap=False, fusion=merged"],
)
def test_further_points_obey_the_laws(session, arguments):
    verdict = check_strategy(f"replicated({arguments})", 3, session=session)
    assert verdict.passed, verdict.broken


# ---- exact results


def test_every_rule_and_collective_gives_the_exact_average(session):
    """Gradients are multiples of a power of two, so that no order of additions rounds."""
    right = run(session, 6, "no_overlap", world_size=4).losses
    points = [f"fusion={fusion}" for fusion in FUSIONS] + [f"collective={one}" for one in COLLECTIVES]
    for point in (*points, "overlap=False", "fusion=shuffled, collective=tree"):
        assert run(session, 6, f"replicated({point})", world_size=4).losses == right, point


def test_accumulation_gives_the_exact_average(session):
    right = run(session, 4, "no_overlap", world_size=4, accumulate=2).losses
    for point in ("", "fusion=shuffled, collective=ring", "overlap=False"):
        assert run(session, 4, f"replicated({point})", world_size=4, accumulate=2).losses == right


def test_what_only_some_ranks_use_is_averaged_and_what_none_uses_has_no_gradient(session):
    """One sample of a batch uses `sometimes`, or none does; `never` must not be moved by momentum or decay."""
    for point, accumulate in (("", 1), ("fusion=per_tensor, collective=ring", 2)):
        variant = session.add(spec(f"replicated({point})", "sleepy(awkward=True)", accumulate=accumulate))
        assert (found := variant.parity(steps=6)).passed, found
        variant.close()


def test_what_only_the_first_micro_batch_uses_is_averaged_though_no_hook_tells_of_it(session):
    for strategy in ("replicated", "replicated(fusion=mgwfbp)", "horovod_like"):
        variant = session.add(spec(strategy, "sleepy(early=True)", world_size=4, accumulate=2))
        assert (found := variant.parity(steps=6)).passed, found
        variant.close()


STRESS = "exchanges(parameters=7, largest=90, sleep_ms=0.3)"


POINTS = (
    "fusion=shuffled(seed=1), collective=ring",
    "fusion=shuffled(seed=2)",
    "fusion=shuffled(seed=3), collective=halving_doubling",
)


def stressed(session, steps, points=POINTS):
    right = run(session, steps, "no_overlap", "exchanges(parameters=7, largest=90)", world_size=4).losses
    for point in points:
        assert run(session, steps, f"replicated({point})", STRESS, world_size=4).losses == right, point


def test_30_steps_of_random_plans_and_pauses_for_each_of_three_collectives(session):
    stressed(session, 30)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_10000_steps_of_random_plans_and_pauses_leak_nothing(session):
    import psutil

    processes = [psutil.Process(pid) for pid in session.ranks.pids]
    stressed(session, 100)
    before = [(p.memory_info().rss, p.num_threads(), p.num_fds()) for p in processes]
    stressed(session, amount(10_000, in_ci=200), POINTS[:1])
    after = [(p.memory_info().rss, p.num_threads(), p.num_fds()) for p in processes]
    for (rss, *others), (rss_after, *others_after) in zip(before, after, strict=True):
        assert rss_after - rss < 16 * 2**20
        assert others == others_after


# ---- overlap, threads


def seen(round_, name, rank=0):
    return next(one.values for one in round_.ranks[rank].series if one.name == name)


def test_groups_go_while_backward_is_at_work_unless_overlap_is_off(session):
    slow = "sleepy(sleep_ms=40)"
    for overlap in (True, False):
        variant = session.add(spec(f"replicated(fusion=per_tensor, overlap={overlap})", slow, world_size=2))
        variant.round(3)
        notes = variant.inspect()[0].notes
        variant.close()
        assert notes["groups"] == 8
        assert notes["groups_started_in_backward"] == (8 if overlap else 0)
        assert notes["transfer_s"] > 0
        assert notes["encode_s"] == notes["decode_s"] == 0
    round_ = run(session, 3, "replicated(fusion=per_tensor)", slow, probes=("sleepy",))
    assert set(seen(round_, "all_reduces")) == {8}


def test_a_thread_is_added_where_exchanges_take_time_and_ends_with_the_variant(session):
    points = {
        "no_overlap": 0,
        "replicated": 0,
        "replicated(collective=ring)": 1,
        "replicated(collective=ring_socket)": 1,
        "replicated(compressor=fp16)": 1,
    }
    runs = [run(session, 2, point, "sleepy", probes=("sleepy",)) for point in (*points, "no_overlap")]
    for rank in range(3):
        (bare,) = set(seen(runs[0], "threads", rank))
        assert [set(seen(one, "threads", rank)) for one in runs] == [{bare + more} for more in (*points.values(), 0)]


def test_one_rank_trains_bare(session):
    found = run(session, 3, "replicated(collective=parameter_server(servers=4))", "sleepy", world_size=1)
    assert found.losses == pytest.approx(run(session, 3, "no_overlap", "sleepy", world_size=1).losses, rel=1e-6)


def test_compression_is_told_apart_from_transfer(session):
    variant = session.add(spec("replicated(compressor=largest)", "exchanges(parameters=9, largest=20000)", 2))
    variant.round(3)
    notes = variant.inspect()[0].notes
    variant.close()
    for part in ("encode_s", "transfer_s", "decode_s", "exposed_s"):
        assert 0 < notes[part] < 1, notes


# ---- failures


@pytest.mark.parametrize("point", ["fusion=per_tensor", "fusion=per_tensor, collective=ring", "collective=ring_socket"])
def test_a_rank_that_fails_in_the_middle_of_an_exchange_ends_the_launch(tmp_path, point):
    started_s = time.monotonic()
    with (
        pytest.raises(RankFailed, match="rank 1/2 step 2 RuntimeError: planned by the test"),
        Session(world_size=2, plugins=PLUGINS, log_folder=tmp_path) as ranks,
    ):
        ranks.add(spec(f"replicated({point})", "sleepy(sleep_ms=1, fails_at=3)", 2)).round(5)
    assert time.monotonic() - started_s < 40


# ---- arguments and closed forms


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("fusion=bucket", "did you mean 'buckets'"),
        ("compressor=fp17", "did you mean 'fp16'"),
        ("collective=rign", "did you mean 'ring'"),
        ("collective=tree(2)", "no unnamed values"),
        ("overlap=maybe", "overlap must be True or False"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        REGISTRY.resolve("strategy", f"replicated({arguments})")


def test_a_collective_that_needs_more_ranks_is_refused_before_any_starts(session):
    with pytest.raises(UsageError, match="the most servers are 2"):
        session.add(spec("replicated(collective=parameter_server(servers=3))", "sleepy", 2))


def test_spellings_of_one_point_are_one():
    texts = [
        "replicated",
        "replicated(buckets(25), none)",
        "replicated(fusion=buckets, collective=native(), overlap=True)",
    ]
    assert {REGISTRY.canonical("strategy", text) for text in texts} == {"replicated"}
    assert REGISTRY.canonical("strategy", "replicated(collective=tree())") == "replicated(collective=tree)"


def closed(point, workload="exchanges", rank=0, world_size=4):
    strategy = REGISTRY.resolve("strategy", f"replicated({point})")
    job = REGISTRY.resolve("workload", workload).build("smoke", 0, torch.device("meta"), 8)
    return strategy.traffic(job, context(world_size, rank)), strategy.memory(job, context(world_size, rank)), job


def test_closed_forms():
    awkward = "sleepy(awkward=True)"  # 4 x (64 + 8) elements, and marks of two that may be unused
    sent, memory, _ = closed("", awkward)
    assert sent == {"all_reduce": 3 * (4 * 288 + 4 * 2) / 2}
    assert memory.gradients == 4 * 288
    assert closed("fusion=mgwfbp", awkward)[0] == sent
    assert closed("fusion=mgwfbp, collective=ring", awkward)[0] is None
    assert closed("compressor=fp16", awkward)[0] == {"all_reduce": 3 * (2 * 288 + 4 * 2) / 2}
    assert closed("compressor=largest", awkward)[1].gradients == 2 * 4 * 288
    sent = closed("compressor=largest", "sleepy", rank=1, world_size=2)[0]
    assert sent == {"all_gather": 4 * 8 * (7 + 1)}  # a tenth of 64 and of 8, rounded up, at 4 + 4 bytes
    assert closed("collective=tree, fusion=merged", "sleepy", rank=0)[0] == {"send": 2 * 4 * 288}
    assert closed("", "sleepy", world_size=1)[0] == {}


def test_every_point_is_named_in_the_lists():
    for kind, names in (("collective", COLLECTIVES), ("compressor", ("none", "fp16", "largest"))):
        known = REGISTRY.names(kind)
        assert {text.partition("(")[0] for text in names} <= set(known)
        assert all(entry.broken_reason is None for entry in REGISTRY.describe(kind))
