"""How measured collectives are written down: a CSV file, and a JSON document."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import msgspec

from parbench.network.bench import Measured
from parbench.record import Schema
from parbench.spreadsheet import harmless

SCHEMA = Schema(name="parbench.network.bench", major=1, minor=0)
# The row of the JSON document first; then what a reader of a single line must know to believe it.
COLUMNS = (
    "op",
    "algorithm",
    "ranks",
    "bytes",
    "median_s",
    "busbw_bytes_per_s",
    "wire_bytes_per_rank",
    "correct",
    "p99_s",
    "algbw_bytes_per_s",
    "dtype",
    "warm_up",
    "iterations",
    "alpha_s",
    "backend",
    "network",
    "wrong",
    "samples_s",
)


def csv_of(measured: Sequence[Measured], setting: Mapping[str, str]) -> bytes:
    """Return the measured collectives as CSV, one per line; the samples are in one field, in order, between blanks.

    Args:
        measured: the collectives.
        setting: "backend" and "network".
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in measured:
        fields = {**msgspec.structs.asdict(one.row), **_more(one), **setting}
        fields["correct"] = "true" if not one.wrong else "false"
        fields["samples_s"] = " ".join(map(repr, one.samples_s))
        writer.writerow({name: harmless(fields[name]) for name in COLUMNS})
    return text.getvalue().encode()


def json_of(measured: Sequence[Measured], setting: Mapping[str, object], reasons: Sequence[str] = ()) -> bytes:
    """Return strict JSON: `rows`, and in the same order `details` with the samples behind them.

    Args:
        measured: the collectives.
        setting: what they were measured on.
        reasons: why something is missing.
    """
    details = [{**_more(one), "sent_bytes_per_rank": one.sent_bytes, "samples_s": one.samples_s} for one in measured]
    rows = [one.row for one in measured]
    whole = {"schema": SCHEMA, **setting, "warnings": list(reasons), "rows": rows, "details": details}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)


def _more(one: Measured) -> dict[str, object]:
    wanted = one.wanted
    return {
        "dtype": wanted.dtype,
        "warm_up": wanted.warm_up,
        "iterations": wanted.iterations,
        "alpha_s": wanted.alpha_s,
        "p99_s": one.percentile_s(99),
        "algbw_bytes_per_s": one.algbw_bytes_per_s,
        "wrong": one.wrong or None,
    }
