"""Frames of figures: what is in them, computed by hand from records, traces, files and histories made here."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from report_cases import a_record, around, of

from parbench.changepoints import ChangePoint, Changes
from parbench.errors import UnreadableError
from parbench.history import History, HistoryCell, Series
from parbench.network.bench import Measured, Wanted
from parbench.network.bench_output import csv_of, json_of
from parbench.observed import Traffic
from parbench.record import Environment, Metric
from parbench.report import data
from parbench.tracing.spans import Collective, RankTrace, Span


def test_rounds_are_seconds_of_a_step_with_the_cells_median() -> None:
    source = of(a_record([4, 6, 5], number=1))
    frame = data.rounds_frame(source.cells, source.records)
    assert list(frame["seconds"]) == pytest.approx([0.004, 0.006, 0.005])
    assert frame["value"].unique() == pytest.approx([0.005])
    assert list(frame["label"]) == ["ddp"] * 3
    assert set(frame["machine"]) == {"Xeon, 2 cores"}


def test_labels_have_ranks_where_there_are_several_numbers_of_them() -> None:
    source = of(a_record([5], number=1), a_record([5], ranks=4, number=2))
    assert list(data.rounds_frame(source.cells, source.records)["label"]) == ["ddp, 2 ranks", "ddp, 4 ranks"]


def test_long_strategies_that_are_cut_alike_are_told_apart() -> None:
    texts = [f"replicated(fusion=buckets(mb=25), compressor=topk(ratio=0.{k}), collective=ring_socket)" for k in (1, 2)]
    source = of(*(a_record([5 + k], strategy=text, number=k) for k, text in enumerate(texts)))
    labels = list(data.rounds_frame(source.cells, source.records)["label"])
    assert len(set(labels)) == 2
    assert labels[1].endswith(" (2)")
    assert max(map(len, labels)) <= 40


def test_what_failed_is_in_no_frame_and_frames_without_rows_have_their_columns() -> None:
    source = of(a_record(status="failed", reason="x"))
    for make in (
        data.rounds_frame,
        data.throughput_frame,
        data.trade_off_frame,
        data.breakdown_frame,
        data.prediction_frame,
        data.links_frame,
    ):
        frame = make(source.cells, source.records)
        assert len(frame) == 0
        assert {"group", "strategy"} <= set(frame.columns)


def test_breakdown_is_that_of_the_launch_in_the_middle_so_that_parts_sum_to_a_step() -> None:
    parts = [{"forward": 0.1, "exposed_comm/all_reduce/dp": 0.3}, {"forward": 0.3}, {"forward": 0.2}]
    records = [a_record([5], breakdown=one, number=k) for k, one in enumerate(parts)]
    frame = data.breakdown_frame(of(*records).cells, records)
    assert dict(zip(frame["part"], frame["seconds"], strict=True)) == {"forward": 0.3}  # of 0.4, 0.3 and 0.2 in all
    assert set(frame["n"]) == {3}


def test_one_point_is_no_trade_off() -> None:
    memory = {"peak_memory_bytes": Metric(value=3.0, unit="bytes", better="lower", n=1)}
    alone = of(a_record([5], metrics=memory), a_record([5], strategy="fsdp"))
    assert len(data.trade_off_frame(alone.cells, alone.records)) == 0
    both = of(a_record([5], metrics=memory), a_record([5], strategy="fsdp", metrics=memory))
    assert list(data.trade_off_frame(both.cells, both.records)["peak_memory_bytes"]) == [3, 3]


def test_predictions_lie_beside_counts() -> None:
    import msgspec

    traffic = Traffic(rank=0, sent={"all_reduce": 100.0, "send": 20.0}, closed_form={"all_reduce": 110.0})
    record = msgspec.structs.replace(a_record([5]), traffic=traffic)
    (row,) = data.prediction_frame(of(record).cells, [record]).to_dict("records")
    assert (row["what"], row["predicted"], row["measured"]) == ("sent in a step", 110, 120)


def test_links_are_the_rate_of_the_slower_direction_and_need_two_of_them() -> None:
    records = [
        a_record(around(9), network="up=100mbit down=200mbit", number=1),
        a_record(around(3), network="1gbit", number=2),
        a_record(around(3), network="1gbit alpha=1ms", number=3),  # another kind of link, one rate
    ]
    frame = data.links_frame(of(*records).cells, records)
    assert list(frame["bits_per_s"]) == [1e8, 1e9]
    assert list(frame["value"]) == pytest.approx([0.009, 0.003])
    assert frame["group"].nunique() == 1


def test_scaling_is_relative_to_the_fewest_ranks() -> None:
    frame = data.scaling_frame(of(*(a_record(around(12 / n), ranks=n, number=n) for n in (2, 4))).cells)
    assert list(frame["speed_up"]) == pytest.approx([1, 2])
    assert list(frame["base_ranks"]) == [2, 2]
    assert list(frame["kind"]) == ["strong", "strong"]


def test_what_is_compiled_is_not_the_base_of_what_is_not() -> None:
    records = [a_record([10], ranks=2, number=1), a_record([2], ranks=4, compile=True, number=2)]
    assert len(data.scaling_frame(of(*records).cells)) == 0


def test_scaling_over_different_links_is_drawn_apart() -> None:
    settings = [(n, links) for links in ("100mbit", "1gbit") for n in (2, 4)]
    records = [a_record(around(12 / n), ranks=n, network=links, number=k) for k, (n, links) in enumerate(settings)]
    frame = data.scaling_frame(of(*records).cells)
    assert list(frame["group"].unique()) == [
        "digits/small network 100mbit, strong",
        "digits/small network 1gbit, strong",
    ]


def test_losses_are_smoothed_and_sums_run_over_steps() -> None:
    sent = {"traffic_bytes_per_step": Metric(value=10.0, unit="bytes", better="lower", n=1)}
    record = a_record([5], metrics=sent)
    steps = pandas.DataFrame(
        [
            {"run": record.id, "step": k, "rank": rank, "seconds": 0.1 + 0.1 * rank, "loss": 10.0 - k}
            for k in range(6)
            for rank in range(2)
        ]
    )
    frame = data.loss_frame(of(record).cells, [record], steps)
    assert list(frame["steps"]) == [5, 6]  # means of 5 steps begin with the fifth
    assert list(frame["loss"]) == pytest.approx([8, 7])  # of 10, 9, 8, 7, 6
    assert list(frame["seconds"]) == pytest.approx([1.0, 1.2])  # each on its slowest rank
    assert list(frame["bytes"]) == [50, 60]
    assert frame["joules"].isna().all()


def test_meters_are_columns_of_probes_that_end_in_a_unit() -> None:
    steps = pandas.DataFrame(
        {"rank": [0, 0], "step": [1, 0], "seconds": [0.5, 0.25], "board_w": [200.0, 100.0], "loss": [1.0, 2.0]}
    )
    frame = data.meter_frame(steps)
    assert list(frame["value"]) == [100, 200]
    assert list(frame["seconds"]) == [0.25, 0.75]
    assert set(frame["label"]) == {"board_w, rank 0"}
    assert set(frame["unit"]) == {"W"}


MEASURED = Measured(
    wanted=Wanted(op="all_reduce", algorithm="ring", ranks=2, bytes=1000, dtype="float32", warm_up=1, iterations=3),
    samples_s=(0.001, 0.002, 0.004),
    sent_bytes=None,
)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_bandwidths_of_either_file_have_quartiles_of_iterations(tmp_path: Path, form: str) -> None:
    setting = {"backend": "gloo", "network": "none"}
    written = csv_of([MEASURED], setting) if form == "csv" else json_of([MEASURED], setting)
    (tmp_path / "bench").write_bytes(written)
    (row,) = data.bandwidth_frame(tmp_path / "bench").to_dict("records")
    # all-reduce of 2 ranks: factor 2 (2 - 1) / 2 = 1; quartiles of 1, 2, 4 ms are 1.5 and 3 ms.
    assert row["label"] == "all_reduce, ring, 2 ranks"
    assert row["value"] == pytest.approx(1000 / 0.002)
    assert row["ci_low"] == pytest.approx(1000 / 0.003)
    assert row["ci_high"] == pytest.approx(1000 / 0.0015)
    assert row["correct"]
    assert row["n"] == 3


@pytest.mark.parametrize(
    "text",
    ["", "a,b\n1,2\n", "{}", "[1]", '{"schema": {"name": "other", "major": 1}}', "{" * 100_000, "op\x00", "\ud800"],
)
def test_other_files_are_no_bandwidths(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UnreadableError, match="not a file of parbench network bench"):
        data.bandwidth_frame(tmp_path / "file")


@pytest.mark.parametrize("kept", [0.5, 0.75, 0.97])
def test_a_file_that_was_cut_short_is_no_bandwidths(tmp_path: Path, kept: float) -> None:
    written = csv_of([MEASURED], {"backend": "gloo", "network": "none"})
    head, _, row = written.rstrip().partition(b"\n")
    (tmp_path / "bench").write_bytes(head + b"\n" + row[: int(kept * row.rindex(b"0.001"))])
    with pytest.raises(UnreadableError, match="not a file of parbench network bench"):
        data.bandwidth_frame(tmp_path / "bench")


def test_bandwidths_that_cannot_be_are_refused(tmp_path: Path) -> None:
    whole = json.loads(json_of([MEASURED], {}))
    whole["rows"][0]["busbw_bytes_per_s"] = -1
    (tmp_path / "file").write_text(json.dumps(whole))
    with pytest.raises(UnreadableError, match="cannot be"):
        data.bandwidth_frame(tmp_path / "file")


def span(kind: str, start: int, end: int) -> Span:
    return Span(name=kind, kind=kind, start_ns=start, end_ns=end, thread="main")


def test_timelines_are_the_first_step_and_collectives_lie_below() -> None:
    spans = (span("step", 0, 100), span("forward", 0, 40), span("operator", 1, 2), span("step", 100, 200))
    seen = Collective(op="all_reduce", number=0, start_ns=50, end_ns=90)
    trace = RankTrace(
        rank=1, world_size=2, backend="gloo", spans=(*spans, span("forward", 100, 140)), collectives=(seen,)
    )
    rows = data.timeline_frame([trace]).to_dict("records")
    assert [(row["kind"], row["lane"]) for row in rows] == [("forward", "compute"), ("collective", "communication")]
    assert rows[1]["start_s"] == pytest.approx(50e-9)
    both = data.timeline_frame([trace], steps=2)
    assert list(both["kind"]) == ["forward", "forward", "collective"]


def test_matrices_are_bytes_of_a_step() -> None:
    frame = data.matrix_frame([[0.0, 6.0], [2.0, 0.0]], steps=2)
    assert {(one.source, one.destination): one.bytes for one in frame.itertuples()} == {
        (0, 0): 0,
        (0, 1): 3,
        (1, 0): 1,
        (1, 1): 0,
    }


def test_history_has_the_median_of_each_level() -> None:
    runs = tuple(f"r{k}" for k in range(5))
    series = Series(unit="s", better="lower", runs=runs, values=(1.0, 1.2, 1.1, 2.0, 2.2))
    cell = HistoryCell(name="digits/small ddp at 2", series={"step_time_s": series})
    found = History(
        environment=Environment(fingerprint="m", software="s", facts={}),
        runs=runs,
        commits=tuple(f"{k}" * 40 for k in range(5)),
        cells={"id": cell},
    )
    point = ChangePoint(
        cell=cell.name, metric="step_time_s", unit="s", better="lower", before="r2", after="r3",
        commits=(None, None), old=1.1, new=2.1, p=0.001, verdict="worse",
    )  # fmt: skip
    frame = data.history_frame(found, Changes(path="", runs=5, series=1, points=(point,)))
    assert list(frame["level"]) == pytest.approx([1.1, 1.1, 1.1, 2.1, 2.1])
    assert list(frame["changed"]) == [False, False, False, True, False]
    assert list(frame["commit"]) == [f"{k}" * 10 for k in range(5)]
    alone = data.history_frame(found, None)
    assert set(alone["level"]) == {1.2}
