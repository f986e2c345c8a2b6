"""The JSON document of some runs, as `--json` prints it: one entry per run, one per cell over its fresh launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from parbench.metrics import Cell
from parbench.record import RunRecord, Schema

SCHEMA = Schema(name="parbench.runs")

# The samples behind a run and what repeats its sweep stay in its record.json.
_LEFT_OUT = ("schema", "rounds", "resolved_suite")


def document(path: Path, records: Sequence[RunRecord], cells: Sequence[Cell]) -> bytes:
    """Return strict JSON: no NaN, every value that was not measured null with its reason.

    Args:
        path: the folder that holds the runs.
        records: the runs, in order.
        cells: the same runs, fresh launches of a cell together.
    """
    whole = {"schema": SCHEMA, "path": str(path), "runs": [_entry(record) for record in records], "cells": cells}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)


def _entry(record: RunRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in _LEFT_OUT}
    return fields | {"metrics": {name: metric.finite() for name, metric in record.metrics.items()}}
