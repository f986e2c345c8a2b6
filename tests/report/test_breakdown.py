"""The lines of a breakdown: every rank, scaled to the timed step, who delays whom; nothing where there is none."""

import io
from pathlib import Path

import msgspec
from rich.console import Console

from parbench.observed_trace import Keeping, RankTraced, Traced
from parbench.record import Metric
from parbench.recordfile import read_record
from parbench.report.breakdown import breakdown_line, breakdown_lines

PLAIN = read_record(Path(__file__).parent.parent / "records" / "record-1.0.json")
PARTS = ({"forward": 0.06, "wait": 0.02, "other": 0.02}, {"forward": 0.09, "other": 0.03, "wait": 0.0})


def record(**changes):
    ranks = tuple(
        RankTraced(
            rank=k,
            coordinate={"dp": k},
            step_s=sum(parts.values()),
            parts=parts,
            unattributed_s=0.01,
            candidates=4,
            recognised=3,
        )
        for k, parts in enumerate(PARTS)
    )
    keeping = (Keeping(rank=1, collectives=4, last=3, delayed_s=0.09), Keeping(rank=0, collectives=4, last=1))
    traced = Traced(steps=3, slowest=1, ranks=ranks, keeping=keeping, files={"trace/rank0.json.gz": 2**20})
    timed = Metric(value=0.06, unit="s", better="lower", n=5)
    return msgspec.structs.replace(
        PLAIN, traced=msgspec.structs.replace(traced, **changes), breakdown=PARTS[1], metrics={"step_time_s": timed}
    )


def text(of):
    console = Console(file=io.StringIO(), width=200)
    console.print(*breakdown_lines(of), sep="\n")
    return console.file.getvalue()


def test_every_rank_has_its_parts_and_the_slowest_is_scaled_to_the_timed_step():
    rows = [line.split() for line in text(record()).splitlines()]
    assert ["forward", "60", "ms", "60%", "90", "ms", "75%", "45", "ms"] in rows
    assert ["wait", "20", "ms", "20%"] in [row[:4] for row in rows]
    assert ["step", "100", "ms", "120", "ms", "60", "ms"] in rows
    shown = text(record())
    assert "rank 1 (dp 1), slowest" in shown
    assert "traced / timed step: 2" in shown
    assert "6 of 8 candidate events recognised" in shown
    assert "rank 1 comes last to 3 of 4 collectives and delays the others by 30 ms a step" in shown
    assert "traces: 1.00 MiB in the run's folder" in shown


def test_one_line_has_the_largest_parts_and_leaves_small_ones_out():
    assert breakdown_line(record()) == "forward 75%, other 25%"


def test_without_a_trace_there_is_nothing():
    assert text(PLAIN).strip() == ""
    assert breakdown_line(PLAIN) is None
    assert text(record(reason="left out")).strip() == ""


def test_names_cannot_change_the_terminal():
    evil = "\x1b]0;x\x07[red]"
    ranks = (RankTraced(rank=0, step_s=0.1, parts={evil: 0.1}, coordinate={evil: 0}),)
    shown = text(record(ranks=ranks, slowest=0))
    assert "\x1b]0" not in shown
    assert "\x07" not in shown
