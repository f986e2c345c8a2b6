"""Frames of meters: what probes read of power and memory, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parbench.report.data.measured import frame_of
from parbench.report.words import visible

if TYPE_CHECKING:
    import pandas

# The end of a column's name says what it holds.
_QUANTITIES = {"_w": ("power", "W"), "_bytes": ("memory", "bytes")}
_COLUMNS = ("what", "label", "seconds", "value", "unit")


def meter_frame(steps: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row per reading: `what`, whose, seconds of steps so far, `value` in `unit`.

    Args:
        steps: samples of one run, as `parbench.load(path, steps=True)` returns them; columns of probes that end in `_w`
            or `_bytes` are read.
    """
    import pandas

    parts: list[pandas.DataFrame] = []
    for column in steps.columns:
        quantity = next((found for end, found in _QUANTITIES.items() if str(column).endswith(end)), None)
        if quantity is None or not pandas.api.types.is_numeric_dtype(steps[column]):
            continue
        known = steps[steps[column].notna()]
        for rank, part in known.groupby("rank", sort=True):
            ordered = part.sort_values("step")
            parts.append(
                pandas.DataFrame(
                    {
                        "what": quantity[0],
                        "label": f"{visible(column, 24)}, rank {rank}",
                        "seconds": ordered["seconds"].cumsum().to_numpy(),
                        "value": ordered[column].to_numpy(),
                        "unit": quantity[1],
                    }
                )
            )
    return pandas.concat(parts, ignore_index=True) if parts else frame_of([], _COLUMNS)
