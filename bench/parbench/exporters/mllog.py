"""MLPerf's log lines (`:::MLLOG {...}`), as mlperf-logging writes and parses them, one file per run.

They follow the format, not a benchmark's rules: no run of parbench is a submission, and none says it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from parbench.exporters.exported import Exported
from parbench.filesystem import Filesystem, publish_file

_TOKEN = ":::MLLOG "
_POINT, _START, _STOP = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
# Keys that mlperf-logging has a name for, and the setting that is meant.
_KEYS = {"global_batch_size": "global_batch_size", "seed": "seed", "gradient_accumulation_steps": "accumulate"}


def write(run: Exported, folder: Path) -> Path:
    """Write `NAME.log` and return its path.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / f"{run.name}.log"
    publish_file(Filesystem(), path, "".join(f"{one}\n" for one in lines(run)).encode())
    return path


def lines(run: Exported) -> Iterator[str]:
    """Yield the lines: settings, the run with its steps, what it reached."""
    start = run.started_s
    end = start + (run.points[-1][1] if run.points else 0.0)
    for key, setting in _KEYS.items():
        if setting in run.settings:
            yield _line(start, _POINT, key, run.settings[setting])
    yield _line(start, _POINT, "parbench_run", {"id": run.name, "title": run.title, **run.settings})
    yield _line(start, _START, "run_start", None)
    for step, passed, seconds, loss in run.points:
        stats = {"step_time_s": seconds, **({} if loss is None else {"loss": loss})}
        yield _line(start + passed, _POINT, "tracked_stats", stats, step=step)
    yield _line(end, _POINT, "tracked_stats", run.metrics)
    if "held_out_accuracy" in run.metrics:
        yield _line(end, _POINT, "eval_accuracy", run.metrics["held_out_accuracy"])
    yield _line(end, _STOP, "run_stop", None, status="success" if run.status == "complete" else "aborted")


def _line(at_s: float, event: str, key: str, value: object, **more: object) -> str:
    # `file` and `lineno` are part of the format: where the line was written from.
    metadata = {"file": "parbench", "lineno": 0, **more}
    whole = {
        "namespace": "",
        "time_ms": round(1e3 * at_s),
        "event_type": event,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    # mlperf-logging takes the last token of a line for its beginning, also one inside a name: colons are spelled out.
    return _TOKEN + json.dumps(whole, allow_nan=False).replace(":::", r"\u003a\u003a\u003a")
