"""What a record says of traces made by hand: breakdown, metrics, and the gates they must pass."""

import math
from pathlib import Path

import msgspec
import pytest

from parbench.cases import Case, Measured
from parbench.columns import TRAFFIC_TYPES
from parbench.launch.messages import TraceDone
from parbench.observed_trace import CollectiveKind, RankTraced, Traced
from parbench.record import Metric
from parbench.spec import RunSpec
from parbench.trace_account import breakdown_of, trace_cautions, trace_metrics
from parbench.trace_findings import columns_of, found_in
from parbench.trace_gates import trace_warnings
from parbench.traced import MOST_PERIOD, MOST_RAW_BYTES, take
from parbench.tracing.spans import Collective, RankTrace, Span

TIMED = Metric(value=0.08, unit="s", better="lower", n=5)
MS = 1_000_000


def rank_traced(rank=0, step_s=0.1, **changes):
    parts = {"forward": 0.03, "backward": 0.04, "exposed_comm/all_reduce/dp": 0.02, "other": 0.01}
    return msgspec.structs.replace(RankTraced(rank=rank, step_s=step_s, parts=parts, overlap=0.5), **changes)


def measured(traced, **changes):
    spec = RunSpec(workload="digits", strategy="ddp", **changes)
    return Measured(case=Case(cell=0, repeat=0, spec=spec, spec_id="x"), traced=traced)


def metrics(*ranks, **changes):
    traced = Traced(steps=3, ranks=ranks, slowest=max(ranks, key=lambda one: one.step_s).rank, **changes)
    m = measured(traced)
    return trace_metrics(m, TIMED, trace_cautions(m))


def codes(*ranks, counted=(), peak=None, **changes):
    return [one.code for one in trace_warnings(Traced(steps=3, ranks=ranks, **changes), counted, peak)]


# ---- metrics


def test_the_slowest_rank_speaks_for_the_step():
    slow = rank_traced(1, 0.12, parts={"forward": 0.06, "exposed_comm/send/pp": 0.03, "exposed_comm/recv/pp": 0.03})
    found = metrics(rank_traced(0), slow)
    assert found["traced_step_time_s"].value == 0.12
    assert found["exposed_comm_fraction"].value == pytest.approx(0.5)
    assert found["traced_over_timed"].value == pytest.approx(1.5)
    traced = Traced(steps=3, ranks=(rank_traced(0), slow), slowest=1)
    assert breakdown_of(measured(traced)) == slow.parts


def test_without_communication_overlap_is_unavailable_and_not_zero():
    found = metrics(rank_traced(overlap=None, parts={"forward": 0.1}))
    assert (found["overlap_fraction"].value, found["overlap_fraction"].quality) == (None, "unavailable")
    assert found["overlap_fraction"].reason == "nothing is communicated"
    assert found["bus_bandwidth_bytes_per_s"].value is None
    assert found["exposed_comm_fraction"].value == 0


def test_a_bubble_is_the_mean_over_stages_and_only_of_pipelines():
    assert metrics(rank_traced())["bubble_fraction"].reason == "there is no pipeline"
    alone = metrics(rank_traced(coordinate={"dp": 0, "pp": 0}))
    assert alone["bubble_fraction"].value is None
    stages = [
        rank_traced(rank, coordinate={"pp": rank}, parts={"bubble": bubble, "forward": 0.1 - bubble})
        for rank, bubble in enumerate((0.02, 0.04))
    ]
    assert metrics(*stages)["bubble_fraction"].value == pytest.approx(0.3)


def test_the_kind_of_collective_that_sends_most_gives_the_bandwidth():
    kinds = (
        CollectiveKind(op="all_gather", axis="dp", ranks=2, buffer_bytes=8.0, logical_bytes=8.0, busbw_bytes_per_s=1e9),
        CollectiveKind(
            op="all_reduce", axis="dp", ranks=2, buffer_bytes=64.0, logical_bytes=64.0, busbw_bytes_per_s=2e9
        ),
        CollectiveKind(op="broadcast", logical_bytes=640.0),
    )
    found = metrics(rank_traced(), collectives=kinds)["bus_bandwidth_bytes_per_s"]
    assert found.value == 2e9
    assert "all_reduce of 64 bytes over 2 ranks of axis dp" in found.source


@pytest.mark.parametrize(
    ("traced", "reason"),
    [(None, "ended before steps were traced"), (Traced(reason="it was left out (--no-trace)"), "--no-trace")],
)
def test_without_a_trace_every_metric_says_why(traced, reason):
    m = measured(traced, trace_steps=0)
    found = trace_metrics(m, TIMED, trace_cautions(m))
    assert len(found) == 6
    assert all(one.value is None and reason in one.reason for one in found.values())
    assert trace_cautions(m) == []
    assert breakdown_of(m) is None


# ---- gates


def test_parts_that_do_not_add_up_are_suspect():
    assert codes(rank_traced()) == []
    assert codes(rank_traced(step_s=0.1019)) == []
    assert codes(rank_traced(step_s=0.1025)) == ["breakdown_does_not_add_up"]
    found = metrics(rank_traced(step_s=0.11))
    assert {name for name, one in found.items() if one.quality == "suspect"} == {
        "traced_step_time_s",
        "exposed_comm_fraction",
    }


def test_time_in_no_part_an_impossible_overlap_and_unseen_events_are_told():
    assert codes(rank_traced(unattributed_s=0.0099)) == []
    assert codes(rank_traced(unattributed_s=0.0101)) == ["time_unattributed"]
    assert codes(rank_traced(overlap=1.0)) == []
    assert codes(rank_traced(overlap=1.01)) == ["overlap_impossible"]
    assert metrics(rank_traced(overlap=-0.1))["overlap_fraction"].quality == "suspect"
    assert codes(rank_traced(candidates=3, recognised=3)) == []
    assert codes(rank_traced(candidates=3, recognised=2)) == ["events_not_recognised"]


def test_a_bandwidth_above_the_link_is_suspect_where_messages_are_long():
    def kind(rate, size):
        return CollectiveKind(op="all_reduce", ranks=2, buffer_bytes=size, logical_bytes=size, busbw_bytes_per_s=rate)

    long, short = 2.0**21, 2.0**18
    assert codes(rank_traced(), peak=1e7, collectives=(kind(1.05e7, long), kind(5e7, short))) == []
    assert codes(rank_traced(), peak=1e7, collectives=(kind(1.2e7, long),)) == ["bandwidth_above_link"]
    assert codes(rank_traced(), peak=None, collectives=(kind(1e12, long),)) == []


def test_bytes_of_the_trace_are_those_that_were_counted():
    seen = rank_traced(bytes_per_step={"all_reduce": 8.0})
    assert codes(seen, counted=[{"all_reduce": 8.0}]) == []
    assert codes(seen, counted=[{"all_reduce": 8.0, "send": 1.0}]) == ["traced_bytes_differ"]
    assert codes(seen, counted=[{}]) == ["traced_bytes_differ"]
    assert codes(rank_traced(bytes_per_step=None), counted=[{}]) == ["traced_bytes_unknown"]


def test_ranks_that_suffer_alike_are_one_warning():
    found = trace_warnings(Traced(ranks=tuple(rank_traced(rank, unattributed_s=0.05) for rank in range(3))), [], None)
    assert [(one.code, one.message.split(":")[0]) for one in found] == [("time_unattributed", "rank 0")]


def test_a_trace_that_is_missing_short_or_large_is_told():
    assert [one.code for one in trace_warnings(Traced(reason="disk full"), [], None)] == ["no_trace"]
    assert codes(rank_traced(), shortened="10 were asked for") == ["trace_shortened"]
    assert codes(rank_traced(), files={"trace/rank0.json.gz": 6 * 10**8}) == ["trace_large"]


# ---- findings


def trace(rank, start_ms, late_ms=0):
    """10 ms of forward, then an all-reduce that both ranks leave at 40 ms."""
    step = Span(name="parbench:step", kind="step", start_ns=start_ms * MS, end_ns=40 * MS, thread="1")
    forward = Span(
        name="parbench:forward", kind="forward", start_ns=start_ms * MS, end_ns=(10 + late_ms) * MS, thread="1"
    )
    reduce = Collective(
        op="all_reduce",
        number=0,
        step=0,
        group="g",
        members=(0, 1),
        axis="dp",
        logical_bytes=1e6,
        issued_ns=(10 + late_ms) * MS,
        start_ns=(10 + late_ms) * MS,
        end_ns=40 * MS,
    )
    return RankTrace(
        rank=rank,
        world_size=2,
        backend="gloo",
        host="h",
        coordinate={"dp": rank},
        spans=(step, forward),
        collectives=(reduce,),
    )


def test_a_late_rank_is_waiting_on_the_other_and_transfer_on_none():
    found = found_in([trace(0, 0), trace(1, 0, late_ms=20)], steps=1, files={})
    early, late = found.ranks
    assert early.parts["wait"] == pytest.approx(0.020)
    assert early.parts["exposed_comm/all_reduce/dp"] == pytest.approx(0.010)
    assert late.parts["wait"] == 0
    assert late.parts["exposed_comm/all_reduce/dp"] == pytest.approx(0.010)
    assert [math.fsum(one.parts.values()) for one in found.ranks] == pytest.approx([0.04, 0.04])
    assert found.collectives[0].transfer_s == pytest.approx(0.010)
    assert (found.keeping[0].rank, found.keeping[0].last) == (1, 1)
    assert found.keeping[0].delayed_s == pytest.approx(0.020)
    assert early.bytes_per_step == {"all_reduce": 1e6}
    assert found.sent == ((0.0, 1e6), (1e6, 0.0))


def test_there_is_a_row_per_rank_and_collective():
    columns = columns_of([trace(0, 0), trace(1, 0, late_ms=20)])
    assert list(columns) == list(TRAFFIC_TYPES)
    assert columns["rank"] == [0, 1]
    assert columns["issued_s"] == pytest.approx([0.010, 0.030])
    assert columns["end_s"] == pytest.approx([0.040, 0.040])
    assert columns["axis"] == ["dp", "dp"]


# ---- bounds


class Variant:
    """Writes traces of so many bytes a step, which cannot be read."""

    def __init__(self, raw_bytes, period=1):
        self.raw_bytes, self.period, self.asked = raw_bytes, period, []

    def trace(self, steps, folder, *, execution=False):
        self.asked.append(steps)
        return tuple(
            TraceDone(path=str(folder / f"rank{k}.json.gz"), raw_bytes=self.raw_bytes * steps, file_bytes=steps)
            for k in range(2)
        )


@pytest.mark.parametrize(
    ("wanted", "period", "raw_bytes", "asked"),
    [
        (3, 1, 1000, [3]),
        (1, 1, 1000, [1]),
        (20, 1, 1000, [3, 20]),
        (10_000, 1, MOST_RAW_BYTES // 400, [3, 400]),
        (10_000, 1, MOST_RAW_BYTES, [3]),
        (3, 2, 1000, [4]),
        (10_000, 3, MOST_RAW_BYTES // 100, [3, 99]),
    ],
)
def test_however_many_steps_are_asked_for_a_trace_is_bounded(wanted, period, raw_bytes, asked):
    variant = Variant(raw_bytes, period)
    found = take(variant, wanted, Path("nowhere"))
    assert variant.asked == asked
    assert "cannot be read" in found.found.reason


def test_a_pattern_longer_than_a_trace_is_not_traced():
    variant = Variant(1, MOST_PERIOD + 1)
    assert f"repeats after {MOST_PERIOD + 1} steps" in take(variant, 3, Path("nowhere")).found.reason
    assert not variant.asked
