"""Records made by hand for reports: a small sweep of known numbers, hostile ones, and many."""

from collections.abc import Sequence
from pathlib import Path

from parbench.metrics import timing_metrics
from parbench.record import Agreement, Chosen, Environment, Failure, Metric, Round, RunRecord, Warned
from parbench.report.sources import Source, source_of
from parbench.spec import RunSpec, spec_id
from parbench.store import Run

# As bad as names and messages can be: markup, attributes, a terminal's escapes, formulas, Markdown, LaTeX, U+2028.
HOSTILE = (
    '"><img src=x onerror=window.owned=1></td></script><script>window.owned=1</script>'
    "\x1b]0;owned\x07\u2028${7*7}{{7*7}}|`[x](javascript:window.owned=1)`"
)
FORMULA = "=HYPERLINK(1)"
AGREED = Agreement(declared="closely", passed=True, loss_difference=1e-7)


def a_record(
    walls_ms: Sequence[float] = (),
    *,
    strategy: str = "ddp",
    ranks: int = 2,
    status: str = "complete",
    reason: str | None = None,
    agreement: Agreement | None = AGREED,
    metrics: dict[str, Metric] | None = None,
    warnings: tuple[Warned, ...] = (),
    failure: Failure | None = None,
    facts: dict[str, str | int | float | bool | None] | None = None,
    breakdown: dict[str, float] | None = None,
    suite: str = "suite",
    number: int = 0,
    **spec: object,
) -> RunRecord:
    """Return a record whose rounds of one step took `walls_ms`."""
    settings = {"workload": "digits", "size": "small", "global_batch_size": 64} | spec
    wanted = RunSpec(strategy=strategy, world_size=ranks, **settings)
    rounds = tuple(
        Round(index=k, first_step=k, steps=1, samples=64, wall_s=wall / 1e3, drain_s=0.0, rank_wall_s=(wall / 1e3,))
        for k, wall in enumerate(walls_ms)
    )
    timing = timing_metrics([rounds], unit="samples", units_per_sample=1, world_size=ranks)
    return RunRecord(
        id=f"20261130T100000Z-{number:08x}",
        suite=suite,
        status=status,
        reason=reason,
        started_at="2026-11-30T10:00:00+00:00",
        spec=wanted,
        spec_id=spec_id(wanted),
        environment=Environment(fingerprint="machine", software="software", facts=facts or {"cpu": "Xeon", "cores": 2}),
        metrics=timing | (metrics or {}) if status == "complete" else {},
        agreement=agreement,
        warnings=warnings,
        failure=failure,
        breakdown=breakdown,
        chosen={"backend": Chosen(value="gloo", because="asked for"), "device": Chosen(value="cpu", because="no GPU")},
        launch={"sweep": "one", "interleaved_with": ["single", "ddp", "topk", "fsdp"], "units_per_sample": 1},
        rounds=rounds,
    )


def of(*records: RunRecord, folder: Path = Path("results"), reference: str | None = None) -> Source:
    """Return the source of records that lie in folders of their own."""
    runs = [Run(folder=folder / record.suite / record.id, record=record) for record in records]
    return source_of(folder, runs, reference=reference)


def around(ms: float) -> list[float]:
    """Return 20 walls whose median is `ms` within a hundredth."""
    return [ms * (1 + 0.001 * (k - 9.5)) for k in range(20)]


def sweep() -> list[RunRecord]:
    """Return single, ddp (twice as fast), a suspect one, one that trains differently, and one that failed."""
    accuracy = {
        share: Metric(value=share, unit="fraction", better="higher", n=1, source="held out") for share in (0.96, 0.95)
    }
    suspect = {"peak_memory_bytes": Metric(value=2**20, unit="bytes", better="lower", n=1).suspected("parts differ")}
    different = Agreement(declared="differently", passed=True)
    return [
        a_record(around(10), strategy="single", ranks=1, number=1, metrics={"held_out_accuracy": accuracy[0.96]}),
        a_record(around(5), strategy="ddp", number=2, metrics={"held_out_accuracy": accuracy[0.96]}),
        a_record(
            around(40),
            strategy="fsdp",
            number=3,
            metrics=suspect,
            warnings=(Warned(code="oversubscribed", message="8 ranks on 2 cores", advice="use -n 2"),),
        ),
        a_record(around(2), strategy="sign_vote", number=4, agreement=different),
        a_record(strategy="topk", number=5, status="failed", reason="rank 1 raised ZeroDivisionError", agreement=None),
    ]


def hostile() -> list[RunRecord]:
    """Return records all of whose texts are attacks."""
    warned = Warned(code=HOSTILE, message=HOSTILE, advice=HOSTILE)
    facts = {"cpu": HOSTILE, "host": HOSTILE, "commit": HOSTILE, HOSTILE: HOSTILE, "torch": "2.13"}
    odd = Metric(value=1.0, unit=HOSTILE, better="lower", n=1, source=HOSTILE).suspected(HOSTILE)
    failed = Failure(rank=0, step=1, kind=HOSTILE, message=HOSTILE, followed=(HOSTILE,))
    settings = {"facts": facts, "suite": HOSTILE, "warnings": (warned,), "size": HOSTILE}
    return [
        a_record(around(10), strategy="single", ranks=1, number=1, **settings),
        a_record(around(5), strategy=HOSTILE, number=2, metrics={"final_loss": odd, HOSTILE: odd}, **settings),
        a_record(around(7), strategy=FORMULA, number=3, breakdown={HOSTILE: 0.1, "forward": 0.2}, **settings),
        a_record(strategy="bad", number=4, status="failed", reason=HOSTILE, failure=failed, **settings),
    ]


def many(count: int) -> list[RunRecord]:
    """Return as many cells."""
    return [
        a_record(
            around(5 + k % 37), strategy=f"topk(ratio=0.{k:04d})" if k else "single", ranks=2 if k else 1, number=k
        )
        for k in range(count)
    ]
