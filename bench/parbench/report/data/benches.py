"""Frames of measured collectives: what `parbench network bench --csv` or `--json` wrote."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parbench.errors import UnreadableError, UsageError
from parbench.report.data.measured import Row, frame_of
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas

_SCHEMA = "parbench.network.bench"
_MOST_BYTES = 1 << 28
_NEEDED = frozenset({"op", "algorithm", "ranks", "bytes", "median_s", "busbw_bytes_per_s", "correct"})
_Fields = Mapping[str, object]


def bandwidth_frame(path: Path) -> pandas.DataFrame:
    """Return a row per collective, algorithm, number of ranks and size: bus bandwidth with its quartiles, in bytes/s.

    Raises:
        UsageError: there is no such file.
        UnreadableError: it is not what `parbench network bench` writes.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UnreadableError(f"{path}: more than {_MOST_BYTES >> 20} MiB, not measured collectives")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}; give a file of network bench") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: not a file of parbench network bench (no text)") from error
    try:
        found = list(_of_json(text) if text.lstrip().startswith("{") else _of_csv(text))
    except (ValueError, KeyError, TypeError, RecursionError, csv.Error) as error:
        raise UnreadableError(f"{path}: not a file of parbench network bench ({error})") from error
    return frame_of(found, ("label", "bytes", "value", "ci_low", "ci_high", "correct", "n"))


def _of_json(text: str) -> Iterator[Row]:
    whole = json.loads(text)
    if whole["schema"]["name"] != _SCHEMA or whole["schema"]["major"] != 1:
        raise ValueError("another schema")
    for row, details in zip(whole["rows"], whole["details"], strict=True):
        yield _row(row, [float(one) for one in details["samples_s"]])


def _of_csv(text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text))
    if not set(reader.fieldnames or ()) >= _NEEDED:
        raise ValueError("other columns")
    for row in reader:
        yield _row({**row, "correct": row["correct"] == "true"}, [float(one) for one in str(row["samples_s"]).split()])


def _row(row: _Fields, samples: Sequence[float]) -> Row:
    value, middle = float(str(row["busbw_bytes_per_s"])), float(str(row["median_s"]))
    if not (math.isfinite(value) and math.isfinite(middle) and value > 0 and middle > 0):
        raise ValueError("a time or bandwidth that cannot be")
    if not samples or not all(math.isfinite(one) and one > 0 for one in samples):
        raise ValueError("samples that cannot be")
    ranks = int(str(row["ranks"]))
    return {
        "label": f"{visible(row['op'], 20)}, {visible(row['algorithm'], 20)}, {ranks} ranks",
        "bytes": float(str(row["bytes"])),
        "value": value,
        "ci_low": value * middle / _quantile(samples, 0.75),
        "ci_high": value * middle / _quantile(samples, 0.25),
        "correct": row["correct"] is True,
        "n": len(samples),
    }


def _quantile(samples: Sequence[float], share: float) -> float:
    import numpy as np

    return float(np.quantile(np.asarray(samples, dtype=np.float64), share))
