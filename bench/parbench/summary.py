"""A Summary is what comparing many runs needs of one record: which cell it is, whether it counts, and its values."""

from __future__ import annotations

from statistics import median

import msgspec

from parbench.record import Better, Environment, Quality, RunRecord
from parbench.samples import sample_of
from parbench.spec import RunSpec
from parbench.verdict import drifted


class Number(msgspec.Struct, frozen=True, array_like=True):
    """One metric of one launch: `value` is None where it was not measured, and `reason` says why."""

    value: float | None
    unit: str
    better: Better | None
    quality: Quality
    reason: str | None
    drifted: bool


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One record in short.

    Attributes:
        id: of the record.
        run: id of the `parbench run` it belongs to.
        repeat: which fresh launch of the cell.
        spec_id: of the cell.
        spec: what was asked.
        environment: where it ran.
        device: where it really computed.
        backend: what really moved its tensors.
        compute: "real", "paced" or "simulated".
        interrupted: the user stopped it: it says nothing about the cell.
        problem: why it does not count as one that passed; None if it does.
        numbers: by metric.
    """

    id: str
    run: str
    repeat: int
    spec_id: str
    spec: RunSpec
    environment: Environment
    device: str
    backend: str
    compute: str
    interrupted: bool
    problem: str | None
    numbers: dict[str, Number]

    @property
    def name(self) -> str:
        """Return the cell in words."""
        return f"{self.spec.workload}/{self.spec.size} {self.spec.strategy} at {self.spec.world_size}"

    @property
    def commit(self) -> str | None:
        """Return the commit that was measured."""
        found = self.environment.facts.get("commit")
        return None if found is None else str(found)


def summary_of(record: RunRecord) -> Summary:
    """Return a record in short."""
    time = record.metrics.get("step_time_s")
    return Summary(
        id=record.id,
        run=str(record.launch.get("sweep") or record.id),
        repeat=record.repeat,
        spec_id=record.spec_id,
        spec=record.spec,
        environment=record.environment,
        device=record.chosen["device"].value if "device" in record.chosen else record.spec.device,
        backend=record.chosen["backend"].value if "backend" in record.chosen else record.spec.backend,
        compute=time.quality if time is not None and time.quality in ("paced", "simulated") else "real",
        interrupted=record.status == "interrupted",
        problem=_problem(record),
        numbers={name: _number(record, name) for name in record.metrics},
    )


def _number(record: RunRecord, name: str) -> Number:
    metric, sample = record.metrics[name], sample_of([record], name)
    value = median(sample.values) if sample.launches else None
    quality: Quality = "unavailable" if value is None else metric.quality
    return Number(value, metric.unit, metric.better, quality, metric.reason, drifted(sample))


def _problem(record: RunRecord) -> str | None:
    agreement = record.agreement
    if record.status != "complete":
        return f"{record.status}: {record.reason or 'no reason given'}"
    if record.numerics != "finite":
        return f"diverged: {record.numerics}"
    if agreement is not None and agreement.passed is False:
        return f"it does not train as its strategy claims: {agreement.reason}"
    return None
