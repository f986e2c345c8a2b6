"""The laws of probes: stop needs start, series have the length they claim, and nothing waits inside a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist

from parbench.api import Comm, Probe, RankContext
from parbench.conformance.findings import Finding, held, judged
from parbench.counting import ByteCounter

_STEPS = 7
_EMPTY_STEPS = 1000


def probe_laws(probe: Probe) -> tuple[list[Finding], float]:
    """Return the findings of every law, and the seconds a step of the probe takes in an empty loop.

    Args:
        probe: what is judged.
    """
    ctx = _context()
    runs = "runs, or says why not"
    if (why := probe.unsupported(ctx)) is not None:
        sentence = None if len(why.split()) >= 4 else f"the reason {why!r} is no sentence; say what is missing"
        return [judged(runs, sentence, why)], 0.0
    overhead_s = _overhead(probe, ctx)
    findings = [
        held(runs),
        judged("stop without start is an error", _stop_first(probe)),
        judged("series have one value per step", _lengths(probe, ctx)),
        judged("says unit and source of every series", _described(probe, ctx)),
        judged("nothing waits inside a step", _waits(probe, ctx)),
        held("its cost on an empty loop is known", f"{overhead_s * 1e6:.2f} us per step"),
    ]
    return findings, overhead_s


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


def _lengths(probe: Probe, ctx: RankContext) -> str | None:
    for steps in (_STEPS, 1, 0):
        probe.start(ctx)
        for _ in range(steps):
            probe.step()
        wrong = [s for s in probe.stop() if s.values and len(s.values) != steps]
        if wrong:
            return f"{wrong[0].name} has {len(wrong[0].values)} values after {steps} steps"
    return None


def _described(probe: Probe, ctx: RankContext) -> str | None:
    probe.start(ctx)
    probe.step()
    for series in probe.stop():
        if not series.unit or not series.source:
            return f"{series.name!r} has no unit or no source; say both"
        if not series.values and not series.reason:
            return f"{series.name!r} has no values and no reason; an absent sensor is a reason, never nothing"
    return None


def _waits(probe: Probe, ctx: RankContext) -> str | None:
    probe.start(ctx)
    with _watched() as waited, ByteCounter() as counter:
        for _ in range(_STEPS):
            probe.step()
    probe.stop()
    waited += [f"issues {one.op}" for one in counter.seen]
    return f"step() {waited[0]}" if waited else None


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Collect calls that make a rank wait."""
    seen: list[str] = []

    def note(what: str) -> mock.Mock:
        return mock.Mock(side_effect=lambda *args, **kwargs: seen.append(f"calls {what}"))

    with (
        mock.patch.object(time, "sleep", note("time.sleep")),
        mock.patch.object(torch.cuda, "synchronize", note("torch.cuda.synchronize")),
        mock.patch.object(torch.Tensor, "item", note("Tensor.item")),
        mock.patch.object(dist, "barrier", note("dist.barrier")),
    ):
        yield seen


def _overhead(probe: Probe, ctx: RankContext) -> float:
    """Return the median over ten loops of seconds per step."""
    times = []
    for _ in range(10):
        probe.start(ctx)
        started_s = time.perf_counter()
        for _ in range(_EMPTY_STEPS):
            probe.step()
        times.append((time.perf_counter() - started_s) / _EMPTY_STEPS)
        probe.stop()
    return statistics.median(times)
