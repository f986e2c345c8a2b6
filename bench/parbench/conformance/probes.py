"""The laws of probes: stop needs start, series have the length they claim, and nothing waits inside a step."""

from __future__ import annotations

import statistics
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, final
from unittest import mock

import torch
import torch.distributed as dist

from parbench.api import Comm, Probe, RankContext
from parbench.conformance.findings import Finding, broken, held, judged, not_applicable
from parbench.counting import ByteCounter

P = ParamSpec("P")

_STEPS = 7
_EMPTY_STEPS = 1000
_EMPTY_S = 0.1
_WAITS = "nothing waits inside a step"
_COST = "its cost on an empty loop is known"
# Off the processor for longer than this in most steps is waiting, whatever the probe calls for it.
_WAITS_S = 100e-6

_DIST = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv"),
)


def probe_laws(probe: Probe) -> tuple[list[Finding], float | None]:
    """Return the findings of every law, and the seconds a step of the probe takes in an empty loop.

    Args:
        probe: what is judged.

    Returns:
        The cost is None where the probe does not get that far.
    """
    ctx = _context()
    runs = "runs, or says why not"
    if (why := probe.unsupported(ctx)) is not None:
        sentence = None if len(why.split()) >= 4 else f"the reason {why!r} is no sentence; say what is missing"
        return [judged(runs, sentence, why)], None
    early = _stop_first(probe)
    watch = _Watch()
    with watch:
        rounds = _guarded(lambda: _lengths(probe, ctx, watch))
        described = _guarded(lambda: _described(probe, ctx, watch))
    waits = f"step() {watch.seen[0]}" if watch.seen else None
    if rounds is not None and rounds.startswith("raised") and waits is None:
        return [broken(runs, rounds)], None
    waits = waits or _off_processor(probe, ctx)
    overhead_s = None if waits else _overhead(probe, ctx)
    findings = [
        held(runs),
        judged("stop without start is an error", early or _stop_first(probe)),
        judged("series have one value per step", rounds),
        judged("says unit and source of every series", described),
        judged(_WAITS, waits),
        not_applicable(_COST, "it waits inside a step")
        if overhead_s is None
        else held(_COST, f"{overhead_s * 1e6:.2f} us per step"),
    ]
    return findings, overhead_s


def _guarded(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything, and breaks only this law
        return f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"


def _context() -> RankContext:
    return RankContext(
        rank=0,
        local_rank=0,
        world_size=1,
        device=torch.device("cpu"),
        dtype=torch.float32,
        comm=Comm(None, 0, 1),
        accumulate=1,
        generator=torch.Generator(),
    )


def _stop_first(probe: Probe) -> str | None:
    try:
        probe.stop()
    except Exception:  # noqa: BLE001 - any error will do; silence will not
        return None
    return "stop() before start() returned as if something had been measured"


def _lengths(probe: Probe, ctx: RankContext, watch: _Watch) -> str | None:
    for steps in (_STEPS, 1, 0):
        probe.start(ctx)
        with watch.step():
            for _ in range(steps):
                probe.step()
        wrong = [s for s in probe.stop() if s.values and len(s.values) != steps]
        if wrong:
            return f"{wrong[0].name} has {len(wrong[0].values)} values after {steps} steps"
    return None


def _described(probe: Probe, ctx: RankContext, watch: _Watch) -> str | None:
    probe.start(ctx)
    with watch.step():
        probe.step()
    for series in probe.stop():
        if not series.unit or not series.source:
            return f"{series.name!r} has no unit or no source; say both"
        if not series.values and not series.reason:
            return f"{series.name!r} has no values and no reason; an absent sensor is a reason, never nothing"
    return None


@final
class _Watch:
    """Notes calls inside steps, made by the thread that steps, that would make a rank wait; they then do nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._thread = threading.get_ident()
        self._inside = False
        self._patches = ExitStack()

    def __enter__(self) -> None:
        for owner, name, what in _waiting_calls():
            real: object = getattr(owner, name)
            if callable(real):
                self._patches.enter_context(mock.patch.object(owner, name, self._noting(real, what)))

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Watch what is done inside."""
        self._inside = True
        try:
            with ByteCounter() as counter:
                yield
        finally:
            self._inside = False
        self.seen += [f"issues {one.op}" for one in counter.seen]

    def _noting(self, real: Callable[P, object], what: str) -> Callable[P, object]:
        def called(*args: P.args, **kwargs: P.kwargs) -> object:
            # A thread that samples beside the steps may sleep as long as it likes.
            if not self._inside or threading.get_ident() != self._thread:
                return real(*args, **kwargs)
            self.seen.append(f"calls {what}")
            return real(*args, **kwargs) if what.startswith(("Tensor.", "Comm.")) else None

        return called


def _waiting_calls() -> Iterator[tuple[object, str, str]]:
    yield time, "sleep", "time.sleep"
    for name in ("item", "tolist", "__float__", "__int__", "__bool__", "cpu"):
        yield torch.Tensor, name, f"Tensor.{name}"
    yield torch.cuda, "synchronize", "torch.cuda.synchronize"
    yield torch.cuda.Event, "synchronize", "torch.cuda.Event.synchronize"
    yield torch.cuda.Stream, "synchronize", "torch.cuda.Stream.synchronize"
    doors = (name for name, one in vars(Comm).items() if isinstance(one, types.FunctionType) and name[0] != "_")
    yield from ((Comm, name, f"Comm.{name}") for name in doors if name != "reset_bytes")
    yield from ((dist, name, f"dist.{name}") for name in _DIST)


def _off_processor(probe: Probe, ctx: RankContext) -> str | None:
    """Say how long a step was off the processor, where that is too long to be chance."""
    waited = []
    probe.start(ctx)
    for _ in range(_STEPS):
        wall_s, busy_s = time.perf_counter(), time.thread_time()
        probe.step()
        busy_s, wall_s = time.thread_time() - busy_s, time.perf_counter() - wall_s
        waited.append(wall_s - busy_s)
    probe.stop()
    typical_s = statistics.median(waited)
    return f"step() is off the processor for {typical_s * 1e6:.0f} us" if typical_s > _WAITS_S else None


def _overhead(probe: Probe, ctx: RankContext) -> float:
    """Return the median over ten loops of seconds per step; loops are shorter where steps are slow."""
    loop_s = [_loop(probe, ctx, 10) for _ in range(3)]
    steps = max(10, min(_EMPTY_STEPS, int(_EMPTY_S / max(1e-9, statistics.median(loop_s)))))
    return statistics.median(_loop(probe, ctx, steps) for _ in range(10))


def _loop(probe: Probe, ctx: RankContext, steps: int) -> float:
    """Return seconds per step."""
    probe.start(ctx)
    started_s = time.perf_counter()
    for _ in range(steps):
        probe.step()
    taken_s = time.perf_counter() - started_s
    probe.stop()
    return taken_s / steps
