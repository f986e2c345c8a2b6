"""Columns are raw samples on their way into a parquet file, one list of equal length per name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Column = Sequence[int | float | str | None]

# Columns of steps.parquet that always have these types, however few values they hold.
STEP_TYPES = {
    "phase": "string",
    "round": "int64",
    "rank": "int64",
    "step": "int64",
    "seconds": "float64",
    "samples": "int64",
    "loss": "float64",
}
# Types of the columns of traffic.parquet.
TRAFFIC_TYPES: Mapping[str, str] = {
    "rank": "int64",
    "step": "int64",
    "number": "int64",
    "op": "string",
    "axis": "string",
    "group": "string",
    "ranks": "int64",
    "peer": "int64",
    "dtype": "string",
    "logical_bytes": "float64",
    "wire_bytes": "float64",
    "issued_s": "float64",
    "start_s": "float64",
    "end_s": "float64",
    "shown_as": "string",
}


def parquet(columns: Mapping[str, Column], types: Mapping[str, str]) -> bytes:
    """Return the columns as a compressed parquet file; those with a type have it, however few values they hold."""
    # Slow to import, and reading records does without.
    import pyarrow
    import pyarrow.parquet

    rows = max(map(len, columns.values()), default=0)
    known = {name: pyarrow.array(columns.get(name, [None] * rows), type=kind) for name, kind in types.items()}
    more = {name: pyarrow.array(column) for name, column in columns.items() if name not in known}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(known | more), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
