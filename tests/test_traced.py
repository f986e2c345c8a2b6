"""Traces of live ranks: what they hold, whose time is whose, and what a record says of them."""

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

from parbench import RunSpec, Session
from parbench.columns import TRAFFIC_TYPES
from parbench.traced import take

pytestmark = pytest.mark.usefixtures("no_orphans")

# Two buckets of the small transformer's gradients.
TWO_BUCKETS = "ddp(bucket_cap_mb=0.08)"


@pytest.fixture(scope="module")
def session(mark):
    with Session(world_size=2, timeout_s=60) as session:
        yield session


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


def traced(session, folder, strategy, steps=3, **options):
    """Return what was found, and each rank's file."""
    variant = session.add(RunSpec(workload="text", size="smoke", strategy=strategy))
    variant.round(3 * variant.period)
    found = take(variant, steps, folder / str(variant.steps_taken) / str(abs(hash(strategy))), **options)
    variant.close()
    assert found.found.reason is None
    files = {name: path for name, path in found.files.items() if "rank" in name}
    return found, [json.loads(gzip.decompress(Path(path).read_bytes())) for path in files.values()]


@pytest.fixture(scope="module")
def two_buckets(session, folder):
    return traced(session, folder, TWO_BUCKETS, execution=True)


@pytest.fixture(scope="module")
def gradients(session):
    """Bytes of all gradients."""
    variant = session.add(RunSpec(workload="text", size="smoke", strategy="ddp"))
    variant.close()
    return 4 * variant.parameters


def names(document):
    return Counter(one["name"] for one in document["traceEvents"] if one.get("ph") == "X")


def test_two_buckets_and_three_steps_are_six_all_reduces_on_every_rank(two_buckets):
    found, documents = two_buckets
    assert len(documents) == 2
    for document in documents:
        seen = names(document)
        assert seen["parbench:step"] == 3
        assert seen["gloo:all_reduce"] == 6
        assert seen["c10d::allreduce_"] == 6
        rows = document["parbench"]["collectives"]
        assert [(row["op"], row["step"]) for row in rows] == [("all_reduce", step) for step in (0, 0, 1, 1, 2, 2)]
    assert [one.collectives for one in found.found.ranks] == [6, 6]
    assert [(one.candidates, one.recognised) for one in found.found.ranks] == [(6, 6), (6, 6)]


def test_a_rank_says_who_it_is(two_buckets):
    _, documents = two_buckets
    for rank, document in enumerate(documents):
        assert document["distributedInfo"]["rank"] == rank
        assert document["distributedInfo"]["world_size"] == 2
        own = document["parbench"]
        assert (own["rank"], own["world_size"], own["backend"], own["coordinate"]) == (rank, 2, "gloo", {"dp": rank})
        assert list(own["axes"].values()) == [{"axis": "dp", "members": [0, 1]}]
    assert documents[0]["parbench"]["host"] == documents[1]["parbench"]["host"]


def test_bytes_of_a_traced_step_are_two_times_n_minus_one_over_n_of_all_gradients(two_buckets, gradients):
    found, _ = two_buckets
    assert [one.bytes_per_step for one in found.found.ranks] == [{"all_reduce": gradients}] * 2  # 2 (n-1)/n = 1
    assert found.found.sent == ((0.0, 3 * gradients), (3 * gradients, 0.0))


def test_parts_sum_to_the_step_and_steps_lie_between_the_collectives_ends(two_buckets):
    found, _ = two_buckets
    for one in found.found.ranks:
        assert math.fsum(one.parts.values()) == pytest.approx(one.step_s, rel=0.02)
        assert one.parts["forward"] > 0
        assert one.parts["backward"] > 0
        assert one.parts["optimizer"] > 0
    columns = found.traffic
    for step, issued_s, start_s, end_s in zip(
        columns["step"], columns["issued_s"], columns["start_s"], columns["end_s"], strict=True
    ):
        assert 0 <= issued_s <= end_s
        assert start_s <= end_s
        assert step in (0, 1, 2)
    # One clock: no rank leaves an all-reduce before the other has come to it.
    assert found.found.uncertainty_s == pytest.approx(0, abs=1e-3)


def test_an_execution_trace_of_the_same_steps_is_written_where_it_is_wanted(two_buckets):
    found, _ = two_buckets
    paths = [path for name, path in found.files.items() if name.startswith("trace/execution")]
    assert len(paths) == 2
    for path in paths:
        nodes = json.loads(Path(path).read_bytes())["nodes"]
        assert sum(node["name"] == "c10d::allreduce_" for node in nodes) == 6


def test_every_round_of_powersgd_appears_and_compression_is_apart(session, folder):
    found, documents = traced(session, folder, "powersgd(rank=2)")
    for one, document in zip(found.found.ranks, documents, strict=True):
        rows = [row for row in document["parbench"]["collectives"] if row["step"] == 0]
        # P, Q and what stays uncompressed, each averaged once.
        assert len(rows) == 3
        assert names(document)["gloo:all_reduce"] == 9
        assert one.parts["compression"] > 0
        assert (one.candidates, one.recognised) == (9, 9)


def test_a_ring_of_sockets_is_seen_too(session, folder):
    found, documents = traced(session, folder, "replicated(collective=ring_socket)")
    assert names(documents[0])["parbench:collective:all_reduce"] == 3
    (kind,) = found.found.collectives
    assert (kind.op, kind.axis, kind.ranks, kind.count, kind.timed) == ("all_reduce", "dp", 2, 3, 3)
    assert kind.transfer_s > 0


def test_a_pipeline_passes_messages_along_its_axis(session, folder):
    found, _ = traced(session, folder, "pipeline(microbatches=4)")
    (kind,) = found.found.collectives
    # Four micro-batches forth and back, in three steps.
    assert (kind.op, kind.axis, kind.count, kind.timed) == ("message", "pp", 24, 24)
    assert {place["pp"] for place in (one.coordinate for one in found.found.ranks)} == {0, 1}
    assert sum(one.parts["bubble"] for one in found.found.ranks) > 0


def test_steps_that_differ_are_counted_while_they_are_traced(session, folder, gradients):
    found, _ = traced(session, folder, "horovod_like")
    assert [one.bytes_per_step for one in found.found.ranks] == [{"all_reduce": gradients}] * 2
    assert None not in found.traffic["logical_bytes"]


def test_whole_periods_are_traced(session, folder):
    found, documents = traced(session, folder, "ddp(sync_every=2)", steps=3)
    assert found.found.steps == 4
    assert [row["step"] for row in documents[0]["parbench"]["collectives"]] == [1, 3]


def test_training_goes_on_as_if_nothing_had_been_traced(session, folder):
    losses = []
    for trace in (False, True):
        variant = session.add(RunSpec(workload="text", size="smoke", strategy="ddp"))
        variant.round(2)
        if trace:
            take(variant, 3, folder / "aside")
        else:
            variant.round(4)  # one is counted, three are traced
        losses.append(variant.round(2).losses)
        variant.close()
    assert losses[0] == losses[1]


def test_a_slow_rank_is_waiting_on_the_other_and_not_transfer(mark, monkeypatch, tmp_path):
    monkeypatch.setenv("PARBENCH_FAULT", "rank=1,step=0,kind=slow,factor=3")
    with Session(world_size=2, timeout_s=60) as session:
        found, _ = traced(session, tmp_path, "ddp")
    waiting, slow = found.found.ranks
    exposed = [one.parts.get("exposed_comm/all_reduce/dp", 0.0) for one in found.found.ranks]
    # It sleeps for two steps of its own after each, and the other rank stands still for that long.
    assert waiting.parts["wait"] > 0.3 * waiting.step_s
    assert slow.parts["wait"] < 0.2 * slow.step_s
    assert slow.parts["other"] > 0.4 * slow.step_s
    assert exposed[0] < 0.5 * waiting.parts["wait"]
    assert found.found.keeping[0].rank == 1


# ---- the command line


def test_a_run_stores_its_trace_and_says_where_the_time_went(parbench):
    found = parbench("digits", "--size", "smoke", "-s", "ddp", "-s", "single", "--steps", "4", "--trace", "--json")
    assert found.code == 0, found.err
    record = found.records["ddp"]
    assert record["schema"]["minor"] >= 3
    parts = record["breakdown"]
    assert math.fsum(parts.values()) == pytest.approx(record["metrics"]["traced_step_time_s"]["value"], rel=0.02)
    assert {"forward", "backward", "wait", "bubble", "compression", "optimizer", "data", "other"} <= parts.keys()
    assert found.runs["ddp"]["breakdown"] == parts
    folder = found.folder(record)
    assert sorted(path.name for path in (folder / "trace").iterdir()) == ["rank0.json.gz", "rank1.json.gz"]
    assert {name: (folder / name).stat().st_size for name in record["traced"]["files"]} == record["traced"]["files"]
    table = pyarrow.parquet.read_table(folder / "traffic.parquet")
    assert table.column_names == list(TRAFFIC_TYPES)
    assert Counter(table.column("rank").to_pylist()) == {0: 3, 1: 3}
    assert record["metrics"]["traced_over_timed"]["value"] > 0
    alone = found.records["single"]["metrics"]
    assert alone["overlap_fraction"]["reason"] == "nothing is communicated"
    assert found.leftovers() == []


def test_traces_can_be_left_out(parbench):
    found = parbench("digits", "--size", "smoke", "-s", "ddp", "--steps", "4", "--no-trace")
    record = found.records["ddp"]
    assert record["breakdown"] is None
    assert "--no-trace" in record["metrics"]["traced_step_time_s"]["reason"]
    assert not (found.folder(record) / "trace").exists()
    assert not (found.folder(record) / "traffic.parquet").exists()
    assert not any(warned["code"] == "no_trace" for warned in record["warnings"])
