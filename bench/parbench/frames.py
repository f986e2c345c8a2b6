"""A frame is a tidy table of stored runs: a row per run and metric, or a row per raw sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parbench.record import Metric
from parbench.store import STEPS, Problem, Run, find_runs

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Column -> type, also of a table without rows.
_METRICS = {
    "run": "str",
    "suite": "str",
    "status": "str",
    "workload": "str",
    "size": "str",
    "strategy": "str",
    "world_size": "int64",
    "device": "str",
    "backend": "str",
    "precision": "str",
    "global_batch_size": "Int64",
    "repeat": "int64",
    "metric": "str",
    "value": "float64",
    "unit": "str",
    "better": "str",
    "n": "int64",
    "ci_low": "float64",
    "ci_high": "float64",
    "source": "str",
    "quality": "str",
    "reason": "str",
    "agreement_passed": "boolean",
    "fingerprint": "str",
    "commit": "str",
    "path": "str",
}
_STEPS = {
    "run": "str",
    "suite": "str",
    "workload": "str",
    "strategy": "str",
    "world_size": "int64",
    "repeat": "int64",
    "phase": "str",
    "round": "Int64",
    "rank": "Int64",
    "step": "Int64",
    "seconds": "float64",
    "samples": "Int64",
    "loss": "float64",
}


def load(path: Path | str, *, steps: bool = False) -> pandas.DataFrame:
    """Load stored runs as a table.

    Args:
        path: a record.json, the folder of a run, of a suite or of all results.
        steps: raw samples (a row per run, rank and step) instead of metrics (a row per run and metric).

    Returns:
        With a row per metric: `value`, `ci_low` and `ci_high` are in `unit`, and NaN where `reason` says why. A run
        that ended before anything was measured has one row, which says so. With a row per sample: `seconds` of one
        step on one rank, `loss` as that rank saw it, `samples` of the whole step. `attrs["problems"]` lists what was
        left out.

    Warns:
        UserWarning: some stored data could not be read and was left out.

    Raises:
        UsageError: there is nothing at `path`.
        UnreadableError: `path` names one run, and that cannot be read.
    """
    runs, problems = find_runs(path)
    frame = samples_frame(runs, problems) if steps else metrics_frame(runs)
    frame.attrs["problems"] = [problem.sentence for problem in problems]
    if problems:
        warnings.warn(f"left out {len(problems)} unreadable: {problems[0].sentence}", UserWarning, stacklevel=2)
    return frame


def metrics_frame(runs: Sequence[Run]) -> pandas.DataFrame:
    """Return a row per run and metric, as `load` does."""
    import pandas

    rows = [_row(run, name, metric) for run in runs for name, metric in _metrics_of(run).items()]
    return pandas.DataFrame(rows, columns=list(_METRICS)).astype(_METRICS)


def _metrics_of(run: Run) -> dict[str, Metric]:
    """Return the metrics of a run; one that says why, where it has none: a run that fails is a result too."""
    record = run.record
    reason = f"{record.status}: {record.reason or 'nothing was measured'}"
    return record.metrics or {"step_time_s": Metric.unavailable("s", "lower", reason)}


def _row(run: Run, name: str, metric: Metric) -> dict[str, str | int | float | bool | None]:
    record, spec = run.record, run.record.spec
    commit = record.environment.facts.get("commit")
    return {
        "run": record.id,
        "suite": record.suite,
        "status": record.status,
        "workload": spec.workload,
        "size": spec.size,
        "strategy": spec.strategy,
        "world_size": spec.world_size,
        "device": record.chosen["device"].value if "device" in record.chosen else spec.device,
        "backend": record.chosen["backend"].value if "backend" in record.chosen else spec.backend,
        "precision": spec.precision,
        "global_batch_size": spec.global_batch_size,
        "repeat": record.repeat,
        "metric": name,
        "value": metric.value,
        "unit": metric.unit,
        "better": metric.better,
        "n": metric.n,
        "ci_low": metric.ci_low,
        "ci_high": metric.ci_high,
        "source": metric.source,
        "quality": metric.quality,
        "reason": metric.reason,
        "agreement_passed": record.agreement.passed if record.agreement else None,
        "fingerprint": record.environment.fingerprint,
        "commit": None if commit is None else str(commit),
        "path": str(run.folder),
    }


def samples_frame(runs: Sequence[Run], problems: list[Problem]) -> pandas.DataFrame:
    """Return a row per run, rank and step, as `load` does; what cannot be read is added to `problems`."""
    import pandas

    frames = [frame for run in runs if (frame := _samples_of(run, problems)) is not None and len(frame)]
    if not frames:
        return pandas.DataFrame(columns=list(_STEPS)).astype(_STEPS)
    return pandas.concat(frames, ignore_index=True).astype(_STEPS)  # columns of probes come after the fixed ones


def _samples_of(run: Run, problems: list[Problem]) -> pandas.DataFrame | None:
    import pyarrow
    import pyarrow.parquet

    path = run.folder / STEPS
    try:
        # One file, by its own schema: no partitions guessed from folder names, no metadata of pandas believed.
        with pyarrow.parquet.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if name in _STEPS or _is_number(file.schema_arrow, name)]
            frame: pandas.DataFrame = file.read(columns=names).to_pandas(ignore_metadata=True)
        frame = frame.astype({name: _STEPS.get(name, "float64") for name in frame.columns})
    except (OSError, ValueError, TypeError, pyarrow.ArrowException) as error:
        problems.append(Problem(path=path, sentence=f"{path}: samples cannot be read: {error}"))
        return None
    missing = [name for name in _SAMPLE_COLUMNS if name not in frame.columns]
    if missing or not frame.columns.is_unique:
        problems.append(
            Problem(
                path=path, sentence=f"{path}: not samples of parbench (no {', '.join(missing) or 'unique columns'})"
            )
        )
        return None
    record = run.record
    return frame.assign(
        run=record.id,
        suite=record.suite,
        workload=record.spec.workload,
        strategy=record.spec.strategy,
        world_size=record.spec.world_size,
        repeat=record.repeat,
    )[[*_STEPS, *(name for name in frame.columns if name not in _STEPS)]]


def _is_number(schema: pyarrow.Schema, name: str) -> bool:
    """Return whether a column beyond the fixed ones holds numbers, as a probe's does."""
    import pyarrow

    position = schema.get_field_index(name)  # -1 where the name is taken twice
    return position >= 0 and bool(pyarrow.types.is_floating(schema.field(position).type))


_SAMPLE_COLUMNS = ["phase", "round", "rank", "step", "seconds", "samples", "loss"]
