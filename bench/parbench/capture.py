"""A capture lets a rank take steps under torch's profiler and leaves what it saw in one file, with what it cannot see.

    counted      one period of steps under the byte counter: op, group, bytes of each collective, in order
    profiled     the traced steps: when each of them was issued, carried out and waited for

Both at once would cost half as much again as a step: the byte counter sees every operator of the step, in Python. Only
where a strategy's messages depend on timing, so that no step is like another, are steps counted while they are traced.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from parbench.annotations import named
from parbench.api import Batch, Trainer
from parbench.counting import ByteCounter, Counted
from parbench.launch.messages import StepsDone, Trace, TraceDone
from parbench.trace_counters import Counter, Counters
from parbench.trace_file import CLOCK, Counts, Log, with_log

_READINGS: Final = 5  # of both clocks; the quickest counts
_LEVEL: Final = 4  # of gzip; higher ones take several times as long for a tenth less


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank is.

    Attributes:
        rank: of the mesh.
        mesh: axis -> ranks along it.
        device: on which it computes.
        counters: what is read beside the steps.
    """

    rank: int
    mesh: Mapping[str, int]
    device: torch.device
    counters: Sequence[Counter] = ()


def count(trainer: Trainer, batch_of: Callable[[int], Batch], *, first: int, period: int) -> Counts:
    """Take a period of steps and return what is issued in each of them.

    Args:
        trainer: at the end of a period.
        batch_of: step -> global batch.
        first: number of the first step.
        period: steps after which the trainer's pattern repeats.
    """
    ends = []
    with ByteCounter() as counter:
        for step in range(first, first + period):
            trainer.step(batch_of(step))
            if step == first + period - 1:
                trainer.drain()
            ends.append(len(counter.seen))
    steps = [counter.seen[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
    return _counts(counter, steps, in_trace=False)


def captured(command: Trace, steps: Callable[[], StepsDone], counts: Counts | None, place: Place) -> TraceDone:
    """Take steps under the profiler and write what was seen of them; what cannot be written is a reason.

    Args:
        command: where files go.
        steps: takes them, from the beginning of a period.
        counts: what is issued in each step of a period; None to count while tracing.
        place: of this rank.
    """
    folder = Path(command.folder)
    into, execution = folder / f"rank{place.rank}.json.gz", folder / f"execution{place.rank}.json"
    folder.mkdir(parents=True, exist_ok=True)
    with _execution_trace(execution if command.execution else None) as observer:
        profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if place.device.type == "cuda" else [])],
            experimental_config=_all_threads(),
            execution_trace_observer=observer,
        )
        profiler.start()
        try:
            readings_ns = [_read_clock() for _ in range(_READINGS)]
            counter, beside = ByteCounter(), Counters(place.counters)
            with beside, counter if counts is None else nullcontext():
                done = steps()
        finally:
            profiler.stop()
    counts = counts or _counts(counter, [counter.seen], in_trace=True)
    try:
        data = _exported(profiler, into.with_name(f"{into.name}.raw"))
        log = Log(rank=place.rank, mesh=place.mesh, counts=counts, readings_ns=readings_ns, counters=beside.told)
        whole = with_log(data, log)
        file_bytes = into.write_bytes(gzip.compress(whole, _LEVEL, mtime=0))
    except (OSError, ValueError) as error:  # what was measured before is as good as ever
        return TraceDone(reason=f"rank {place.rank} could not write its trace: {error}")
    return TraceDone(
        path=str(into),
        execution=str(execution) if command.execution else None,
        raw_bytes=len(data),
        file_bytes=file_bytes,
        wall_s=done.wall_s,
    )


def _counts(counter: ByteCounter, steps: Sequence[Sequence[Counted]], *, in_trace: bool) -> Counts:
    return Counts(
        steps=steps,
        in_trace=in_trace,
        unreadable=dict(counter.unknown),
        members=dict(_members({one.group for one in counter.seen})),
        backend=dist.get_backend(),
    )


def _exported(profiler: profile, raw: Path) -> bytes:
    try:
        profiler.export_chrome_trace(str(raw))
        return raw.read_bytes()
    finally:
        raw.unlink(missing_ok=True)


def _all_threads() -> _ExperimentalConfig:
    """Return the settings under which threads that were started earlier are seen too: the backend's, the engine's."""
    config = _ExperimentalConfig(profile_all_threads=True)
    # Since torch 2.13: no second copy of all events in Python.
    if "trace_only" in dir(config):
        config.trace_only = True
    return config


def _read_clock() -> tuple[int, int]:
    """Let an annotation begin, and return this host's clock before and after."""
    before_ns = time.perf_counter_ns()
    with named(CLOCK):
        after_ns = time.perf_counter_ns()
    return before_ns, after_ns


@contextmanager
def _execution_trace(path: Path | None) -> Iterator[ExecutionTraceObserver | None]:
    """Give the observer that writes PyTorch's execution trace, if there is to be one."""
    if path is None:
        yield None
        return
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    try:
        yield observer
    finally:
        observer.unregister_callback()


def _members(groups: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and world ranks of torch's groups; parbench's own rings of sockets are none."""
    for name in groups:
        try:
            group: dist.ProcessGroup = _resolve_process_group(name)  # type: ignore[arg-type]
        except (RuntimeError, ValueError, KeyError):
            continue
        yield name, tuple(dist.get_process_group_ranks(group))
