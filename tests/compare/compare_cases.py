"""Records made by hand for comparing: rounds of known length, one machine and one software unless said."""

import zlib
from collections.abc import Sequence

from parbench.metrics import timing_metrics
from parbench.record import Agreement, Chosen, Environment, Metric, Round, RunRecord
from parbench.spec import RunSpec, spec_id

SAMPLES = 64
AGREED = Agreement(declared="closely", passed=True)


def a_record(
    walls: Sequence[float] = (0.01,) * 8,
    *,
    strategy: str = "ddp",
    world_size: int = 2,
    repeat: int = 0,
    sweep: str = "one",
    at: str = "2026-11-30T10:00:00+00:00",
    together: Sequence[str] = (),
    status: str = "complete",
    agreement: Agreement | None = AGREED,
    numerics: str = "finite",
    fingerprint: str = "machine",
    software: str = "software",
    facts: dict[str, str | int | float | bool | None] | None = None,
    backend: str = "gloo",
    metrics: dict[str, Metric] | None = None,
    lag_s: float = 0.0,
    run_id: str | None = None,
    **spec: object,
) -> RunRecord:
    """Return a record whose rounds of one step take `walls` seconds; the last rank ends `lag_s` after the others."""
    settings = {"workload": "digits", "size": "small", "global_batch_size": SAMPLES} | spec
    wanted = RunSpec(strategy=strategy, world_size=world_size, **settings)
    rounds = tuple(
        Round(
            index=k,
            first_step=k,
            steps=1,
            samples=SAMPLES,
            wall_s=wall,
            drain_s=0.0,
            rank_wall_s=(*((wall - lag_s,) * (world_size - 1)), wall),
        )
        for k, wall in enumerate(walls)
    )
    timing = timing_metrics([rounds], unit="samples", units_per_sample=1, world_size=world_size) if rounds else {}
    return RunRecord(
        id=run_id or f"20261130T1000{repeat:02d}Z-{_digits(strategy, world_size, sweep, repeat, spec)}",
        suite="suite",
        status=status,
        reason=None if status == "complete" else "rank 1 raised",
        started_at=at,
        spec=wanted,
        spec_id=spec_id(wanted),
        repeat=repeat,
        environment=Environment(fingerprint=fingerprint, software=software, facts=facts or {}),
        metrics=timing | (metrics or {}) if status == "complete" else {},
        agreement=agreement,
        numerics=numerics,
        chosen={"backend": Chosen(value=backend, because="asked for")},
        launch={"sweep": sweep, "interleaved_with": list(together), "unit": "samples", "units_per_sample": 1},
        rounds=rounds,
    )


def _digits(*what) -> str:
    return f"{zlib.crc32(repr(what).encode()):08x}"


def launches(seconds: Sequence[float], **settings) -> list[RunRecord]:
    """Return fresh launches of one cell whose rounds take about `seconds` each, a little apart from one another."""
    wobble = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)
    return [a_record([s * w for w in wobble], repeat=k, **settings) for k, s in enumerate(seconds)]


def runs(seconds: Sequence[float], *, first: int = 0, **settings) -> list[RunRecord]:
    """Return one launch of a cell per `parbench run`, oldest first; run k of two cells is the same run."""
    wobble = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)
    cell = _digits(settings.get("strategy", "ddp"), settings.get("world_size", 2))
    return [
        a_record([s * w for w in wobble], sweep=f"run{k}", run_id=f"20261130T10{k:04d}Z-{cell}", **settings)
        for k, s in enumerate(seconds, start=first)
    ]
