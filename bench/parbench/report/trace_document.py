"""The JSON document of traces, as `parbench trace PATH --json` prints it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from parbench.record import Schema
from parbench.tracing.summary import Summary

SCHEMA = Schema(name="parbench.trace.summary", major=1, minor=0)


def trace_document(path: Path, summary: Summary, merged: Path | None, problems: list[str]) -> bytes:
    """Return strict JSON; what was not seen is null.

    Args:
        path: what was asked about.
        summary: what the traces say.
        merged: the merged file, if one was written.
        problems: a sentence for each file that was left out.
    """
    fields = {name: getattr(summary, name) for name in summary.__struct_fields__}
    whole = {
        "schema": SCHEMA,
        "path": str(path),
        "merged": None if merged is None else str(merged),
        "problems": problems,
        **fields,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)
