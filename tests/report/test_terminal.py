"""Tests of the terminal table: what it must say, what it must never say, whatever names and widths it is given."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
import pytest
from rich.console import Console

from parbench.metrics import Cell
from parbench.record import Agreement, Chosen, Environment, Metric, RunRecord, Status, Warned
from parbench.report.details import record_details
from parbench.report.terminal import sweep_table
from parbench.spec import RunSpec, spec_id

ENVIRONMENT = Environment(fingerprint="f", software="s", facts={"cpu": "Xeon", "cores": 2, "torch": "2.13"})
AGREES = Agreement(declared="closely", passed=True, loss_difference=1e-9, parameter_difference=3.1e-7, steps=3)


def timed(value: float, low: float | None = None, high: float | None = None) -> Metric:
    return Metric(value=value, unit="s", better="lower", n=20, ci_low=low, ci_high=high, source="rounds")


def case(
    strategy: str,
    step: Metric,
    *,
    ranks: int = 2,
    status: Status = "complete",
    rankable: bool = True,
    agreement: Agreement | None = AGREES,
    numerics: str = "finite",
    reason: str | None = None,
    warnings: tuple[Warned, ...] = (),
    workload: str = "digits",
) -> tuple[Cell, RunRecord]:
    spec = RunSpec(workload=workload, strategy=strategy, world_size=ranks, global_batch_size=64)
    metrics = {
        "step_time_s": step,
        "samples_per_s": Metric(value=12345.0, unit="samples/s", better="higher", n=20, source="rounds"),
        "tokens_per_s": Metric.unavailable("tokens/s", "higher", "the workload counts samples"),
        "startup_s": Metric(value=0.25, unit="s", better="lower", n=1, source="clock"),
        "final_loss": Metric(value=1.2345, unit="nats", better="lower", n=1, source="held"),
        "held_out_accuracy": Metric(value=0.91, unit="", better="higher", n=1, source="held"),
    }
    record = RunRecord(
        id=f"id-{strategy}-{ranks}",
        suite="default",
        status=status,
        reason=reason,
        started_at="",
        spec=spec,
        spec_id=spec_id(spec),
        environment=ENVIRONMENT,
        metrics=metrics if status == "complete" else {},
        agreement=agreement,
        warnings=warnings,
        numerics=numerics,
        chosen={
            "backend": Chosen(value="gloo", because="no GPU"),
            "device": Chosen(value="cpu", because="torch finds no GPU"),
        },
    )
    done = status == "complete"
    cell = Cell(
        spec=spec,
        spec_id=record.spec_id,
        strategy=strategy,
        fingerprint="f",
        software="s",
        run_ids=(record.id,),
        statuses=(status,),
        launches=int(done),
        metrics=metrics if done else {"step_time_s": Metric.unavailable("s", "lower", "no launch is complete")},
        launch_medians={},
        spread={},
        rankable=rankable and done,
    )
    return cell, record


def shown(cases: Sequence[tuple[Cell, RunRecord]], width: int = 160) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    console.print(sweep_table([cell for cell, _ in cases], [record for _, record in cases], width=width))
    return out.getvalue()


def line_with(text: str, part: str) -> str:
    return next(line for line in text.splitlines() if part in line)


SINGLE = case(
    "single", timed(0.001, 0.0009, 0.0011), ranks=1, agreement=msgspec.structs.replace(AGREES, declared="exactly")
)
DDP = case("ddp", timed(0.0005, 0.00049, 0.00051))


def test_a_line_says_time_interval_unit_speed_and_agreement() -> None:
    text = shown([SINGLE, DDP])
    line = line_with(text, "ddp ")
    for part in ("500 [490, 510] µs", " 2.00 ", "12.3 k samples/s", "✓ closely 3e-7", "1.23", "91.0 %", "250 ms"):
        assert part in line
    assert "× single" in text
    assert "digits/small: fastest is ddp at 2 ranks" in text
    for part in ("default", "Xeon", "gloo", "n = 20", "95 % interval", "share its 2 cores"):
        assert part in text


def test_overlapping_intervals_have_no_winner() -> None:
    text = shown([SINGLE, case("ddp", timed(0.00095, 0.0009, 0.001))])
    assert "no clear winner between ddp at 2 ranks and single at 1 rank" in text
    assert "fastest" not in text
    assert "≈ 1.05" in text


def test_without_intervals_there_is_no_winner() -> None:
    text = shown([case("single", timed(1.0), ranks=1), case("ddp", timed(0.1))])
    assert "fastest" not in text
    assert "too few rounds" in text


def test_one_winner_of_three_must_beat_all_of_them() -> None:
    text = shown([SINGLE, DDP, case("no_overlap", timed(0.0006, 0.0004, 0.0008))])
    assert "no clear winner between ddp at 2 ranks and no_overlap at 2 ranks" in text


@pytest.mark.parametrize(
    ("bad", "parts"),
    [
        (
            case(
                "fast",
                timed(1e-6, 1e-6, 1e-6),
                rankable=False,
                agreement=Agreement(declared="closely", passed=False, loss_difference=0.5, reason="losses differ"),
            ),
            ("✗ closely 5e-1", "losses differ", "not ranked", "does not train as one process"),
        ),
        (
            case("fast", timed(1e-6, 1e-6, 1e-6), rankable=False, numerics="nonfinite at step 3"),
            ("not ranked", "nonfinite at step 3"),
        ),
        (
            case(
                "fast",
                timed(1e-6, 1e-6, 1e-6).suspected("parts do not add up"),
                rankable=False,
            ),
            (" ? [", "suspect", "parts do not add up"),
        ),
        (
            case(
                "fast",
                timed(1e-6, 1e-6, 1e-6),
                rankable=False,
                agreement=Agreement(declared="closely", passed=None, reason="--parity-steps 0"),
            ),
            ("not checked", "--parity-steps 0"),
        ),
    ],
)
def test_what_is_not_rankable_is_shown_and_never_ranked(bad: tuple[Cell, RunRecord], parts: tuple[str, ...]) -> None:
    text = shown([SINGLE, DDP, bad])
    for part in parts:
        assert part in text
    assert "fastest is ddp" in text
    assert "fastest is fast" not in text
    assert "1000" not in line_with(text, "fast ")


def test_unavailable_metrics_are_dashes_with_their_reason() -> None:
    cell, record = DDP
    missing = Metric.unavailable("", "higher", "the data is synthetic")
    cell = msgspec.structs.replace(cell, metrics={**cell.metrics, "held_out_accuracy": missing})
    text = shown([SINGLE, (cell, record)])
    assert "\N{EN DASH} [1]" in line_with(text, "ddp ")
    assert "[1] held-out acc.: the data is synthetic" in text


def test_failed_cells_say_how_and_why() -> None:
    reason = "rank 1/2 step 3 ZeroDivisionError: division by zero"
    text = shown([SINGLE, case("ddp", timed(1.0), status="failed", reason=reason)])
    assert "failed" in line_with(text, "ddp ")
    assert f"failed: ddp at 2 ranks on digits/small: {reason}" in text
    assert "fastest" not in text


def test_without_a_reference_there_is_no_speed_column() -> None:
    assert "× single" not in shown([DDP])


def test_warnings_come_with_their_advice() -> None:
    warned = Warned(code="oversubscribed", message="8 ranks on 2 cores", advice="use -n 2")
    text = shown([SINGLE, case("ddp", timed(1.0), warnings=(warned,)), case("x", timed(1.0), warnings=(warned,))])
    assert "warning oversubscribed (ddp and x): 8 ranks on 2 cores → use -n 2" in text


HOSTILE = "\x1b]0;owned\x07[red]x[/red] :smile: \r\u202e{a}"


def test_hostile_names_cannot_steer_the_terminal() -> None:
    warned = Warned(code=HOSTILE, message=HOSTILE, advice=HOSTILE)
    bad = case(HOSTILE, timed(1.0), status="failed", reason=HOSTILE, warnings=(warned,), workload=HOSTILE)
    text = shown([SINGLE, DDP, case(HOSTILE, timed(1.0), workload=HOSTILE), bad])
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
    assert "[red]x[/red] :smile:" in text
    assert "\\x1b]0;owned\\x07" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_every_width_says_which_how_fast_and_whether_it_is_true(width: int) -> None:
    text = shown([SINGLE, DDP, case("no_overlap", timed(0.02, 0.019, 0.021), ranks=4)], width)
    assert all(len(line) <= width for line in text.splitlines())
    if width >= 80:
        for part in ("500 [490, 510] µs", "no_overlap", "✓ closely", "ranks", "digits/small"):
            assert part in text
    assert "…" not in text


def test_nothing_to_show_is_said() -> None:
    assert "no cells" in shown([])


def test_details_say_everything_about_a_run() -> None:
    out = io.StringIO()
    warned = Warned(code="slow_first_step", message="2 s", advice="warm up")
    _, record = case(HOSTILE, timed(1.0, 0.9, 1.1), warnings=(warned,))
    Console(file=out, width=160).print(record_details(record))
    text = out.getvalue()
    for part in ("complete", "1.00 [0.900, 1.10] s", "gloo (no GPU)", "slow_first_step", "warm up", "cpu=Xeon", "3e-7"):
        assert part in text
    assert "\x1b" not in text
