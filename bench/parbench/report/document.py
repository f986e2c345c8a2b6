"""The JSON document of a sweep: what `--json` prints, one entry per run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parbench.record import RunRecord, Schema

# The samples behind a run and its place in a sweep stay in its record.json.
_FIELDS = (
    "id",
    "status",
    "reason",
    "spec",
    "environment",
    "metrics",
    "agreement",
    "breakdown",
    "warnings",
    "spec_id",
    "repeat",
    "started_at",
    "numerics",
    "chosen",
    "failure",
)


def document(path: str, records: Sequence[RunRecord]) -> bytes:
    """Return strict JSON: no NaN, every value that was not measured null with its reason.

    Args:
        path: the folder that holds the runs.
        records: the runs, in order.
    """
    return msgspec.json.encode(
        {"schema": Schema(name="parbench.runs"), "path": path, "runs": [_entry(record) for record in records]}
    )


def _entry(record: RunRecord) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(record, name) for name in _FIELDS}
    metrics = {name: metric.finite() for name, metric in record.metrics.items()}
    spec = {name: getattr(record.spec, name) for name in record.spec.__struct_fields__}
    return {**fields, "metrics": metrics, "spec": spec}
