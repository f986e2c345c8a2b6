"""A trace of a case: as many steps as fit into bounds, whatever was asked for, and what was worked out from them.

    first pass      3 steps at most, or one period: how many bytes is a step?
    second pass     only where more was asked for: as many as fit

So neither memory nor disk grows with the length of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from parbench.columns import Column
from parbench.errors import UnreadableError
from parbench.launch.messages import TraceDone
from parbench.observed_trace import Traced
from parbench.pace import whole_periods
from parbench.trace_findings import columns_of, found_in
from parbench.tracing import chrome

STEPS: Final = 3
# Of one rank's trace before it is compressed: a rank holds it once or twice, the launcher as objects.
MOST_RAW_BYTES: Final = 16 * 2**20
# Of all files of a run together.
MOST_FILE_BYTES: Final = 128 * 2**20
MOST_PERIOD: Final = 50


class Traceable(Protocol):
    """What can take traced steps: a variant of a session."""

    @property
    def period(self) -> int:
        """Steps after which its pattern repeats."""

    def trace(self, steps: int, folder: Path, *, execution: bool = False) -> tuple[TraceDone, ...]:
        """Take steps under the profiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace of all ranks.

    Attributes:
        found: what was worked out.
        files: name in a record's folder -> path.
        traffic: columns of traffic.parquet, one row per collective and rank.
    """

    found: Traced
    files: Mapping[str, str] = field(default_factory=dict)
    traffic: Mapping[str, Column] = field(default_factory=dict)


def take(variant: Traceable, steps: int, folder: Path, *, execution: bool = False) -> Trace:
    """Let a variant take traced steps and work out where their time went.

    Args:
        variant: alive, at the end of a period.
        steps: how many to trace; fewer where they would not fit.
        folder: where files may be put.
        execution: whether PyTorch's execution traces are wanted too.
    """
    if variant.period > MOST_PERIOD:
        return Trace(
            found=Traced(reason=f"its pattern repeats after {variant.period} steps, more than {MOST_PERIOD} of a trace")
        )
    wanted = whole_periods(steps, variant.period)
    taken = min(wanted, whole_periods(STEPS, variant.period))
    done = variant.trace(taken, folder, execution=execution)
    fitting = min((_fitting(one, taken, len(done)) for one in done if one.reason is None), default=0)
    more = min(wanted, fitting // variant.period * variant.period)
    if more > taken:
        taken, done = more, variant.trace(more, folder, execution=execution)
    shortened = f"{wanted} steps were asked for, and {taken} fit into a trace" if taken < wanted else None
    return _read(done, taken, shortened)


def _fitting(one: TraceDone, steps: int, ranks: int) -> int:
    """Return how many steps fit into what a rank's trace may take, by what some took."""
    return int(steps / max(one.raw_bytes / MOST_RAW_BYTES, one.file_bytes * ranks / MOST_FILE_BYTES, 1e-9))


def _read(done: Sequence[TraceDone], steps: int, shortened: str | None) -> Trace:
    """Read what ranks wrote: what cannot be read is not stored."""
    if lacking := [one.reason for one in done if one.reason is not None]:
        return Trace(found=Traced(reason=lacking[0]))
    paths = [Path(one.path) for one in done if one.path is not None]
    executions = [Path(one.execution) for one in done if one.execution is not None]
    try:
        traces = [chrome.read(path) for path in paths]
        sizes = {f"trace/{path.name}": path.stat().st_size for path in (*paths, *executions)}
    except (OSError, ValueError, UnreadableError) as error:
        return Trace(found=Traced(reason=f"what a rank wrote cannot be read: {error}"))
    return Trace(
        found=found_in(traces, steps=steps, files=sizes, shortened=shortened),
        files={f"trace/{path.name}": str(path) for path in (*paths, *executions)},
        traffic=columns_of(traces),
    )
