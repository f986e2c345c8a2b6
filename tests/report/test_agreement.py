"""The agreement table: one row per strategy and workload, reasons below, whatever names say."""

import msgspec
import pytest

from parbench.record import Agreement, Environment, RunRecord
from parbench.report.agreement import agreement_table
from parbench.spec import RunSpec


def record(strategy="ddp", ranks=2, precision="fp32", *, status="complete", reason=None, why=None, **agreement):
    found = Agreement(**{"declared": "closely", "passed": True, "loss_difference": 3.4e-7, "reason": why} | agreement)
    return RunRecord(
        id="r",
        suite="s",
        status=status,
        reason=reason,
        started_at="now",
        spec=RunSpec(workload="text", strategy=strategy, world_size=ranks, precision=precision),
        spec_id="x",
        environment=Environment(fingerprint="f", software="s", facts={}),
        agreement=found if status == "complete" else None,
    )


def test_ranks_and_precisions_are_columns_and_reasons_are_numbered():
    text = agreement_table(
        [
            record(),
            record(precision="bf16", loss_difference=2e-3),
            record(ranks=4, status="unsupported", reason="4 ranks cannot share 3 heads"),
            record("tensor", ranks=4, status="unsupported", reason="4 ranks cannot share 3 heads"),
            record("broken", passed=False, loss_difference=0.5, why="losses differ"),
            record("fedavg", declared="differently", loss_difference=0.25),
        ]
    )
    assert text.splitlines() == [
        "| strategy | workload | 2 ranks, fp32 | 2 ranks, bf16 | 4 ranks, fp32 |",
        "| --- | --- | --: | --: | --: |",
        "| `ddp` | text | 3e-7 | 2e-3 | – (1) |",
        "| `tensor` | text |  |  | – (1) |",
        "| `broken` | text | ✗ 5e-1 (2) |  |  |",
        "| `fedavg` | text | 2e-1 (differently) |  |  |",
        "",
        "1. 4 ranks cannot share 3 heads",
        "2. losses differ",
        "",
        "Largest difference of a step's mean loss from one process on the same global batches, in nats; ✗ is too much.",
    ]


def test_cells_that_differ_otherwise_have_rows_of_their_own_and_the_worst_launch_speaks():
    compiled = record(loss_difference=5e-6)
    compiled = msgspec.structs.replace(compiled, spec=msgspec.structs.replace(compiled.spec, compile=True))
    wrong = record(passed=False, loss_difference=0.5)
    assert agreement_table([wrong, record(), compiled]).splitlines()[2:4] == [
        "| `ddp` | text compile=False | ✗ 5e-1 |",
        "| `ddp` | text compile=True | 5e-6 |",
    ]


@pytest.mark.parametrize("name", ["a|b", "`x`", "<script>", "a\nb\x1b[31m"])
def test_names_cannot_break_the_table(name):
    line = agreement_table([record(name)]).splitlines()[2]
    assert line.count("|") - line.count(r"\|") == 4
    assert "\x1b" not in line
    assert "<" not in line
