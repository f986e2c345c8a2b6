"""The loop owns the steps of a round: barrier, K steps marked without barriers, drain; it knows no strategy by name.

rank 0  |barrier|= step =|= step =|==== step ====|drain|
rank 1  |barrier|== step ==|= step =|== step ==| drain |
                ^ start                                ^ finish: the slowest rank's wall time counts
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from parbench.annotations import annotated
from parbench.api import Batch, Probe, RankContext, Trainer
from parbench.clock import Clock
from parbench.faults import Fault, strike
from parbench.launch.messages import StepsDone
from parbench.record import Series
from parbench.slowing import SERIES, Pace


class Progress(Protocol):
    """Where the loop says which step it is in."""

    step: int | None


def run_steps(
    trainer: Trainer,
    batch_of: Callable[[int], Batch],
    ctx: RankContext,
    clock: Clock,
    *,
    first: int,
    count: int,
    progress: Progress,
    fault: Callable[[int], Fault | None],
    probes: Sequence[Probe] = (),
    loss_scale: float = 1.0,
    pace: Pace | None = None,
) -> StepsDone:
    """Train `count` steps from step number `first` and return this rank's raw samples.

    Args:
        trainer: the variant.
        batch_of: step -> global batch.
        ctx: this rank.
        clock: marks the steps.
        first: number of the first step; warm-up steps count too.
        count: steps between the two barriers.
        progress: told the number of the step being taken.
        fault: step -> the fault injected there, if any.
        probes: cheap meters, told about every step.
        loss_scale: what the losses that the trainer gives are multiplied by.
        pace: how this rank is slowed on purpose, if it is.
    """
    losses: list[Tensor | None] = []
    samples: list[int] = []
    skipped: list[int] = []
    waits_s: list[float] = []
    positions = 0
    gc.collect()
    for probe in probes:
        probe.start(ctx)
    ctx.comm.barrier()
    clock.start()
    began_s = time.perf_counter()
    for step in range(first, first + count):
        progress.step = step
        with annotated("step"):
            injected = fault(step)
            if injected is not None:
                strike(injected)
            started_s = time.perf_counter()
            computed_s = 0.0 if pace is None else time.thread_time()
            with annotated("data"):
                batch = batch_of(step)
            left_out = trainer.left_out()
            loss = trainer.step(batch)
            skipped.append(trainer.left_out() - left_out)
            if injected is not None:
                loss = _disturb(injected, loss, time.perf_counter() - started_s)
            if pace is not None:
                # Its thread's time: what it waits for other ranks is no work of its own, and does not become more.
                waits_s.append(pace.wait_s(step, time.thread_time() - computed_s))
                with annotated("slowed"):
                    time.sleep(waits_s[-1])
            losses.append(loss)
            samples.append(batch.samples)
            positions += batch.targets.numel()
            clock.mark()
            for probe in probes:
                probe.step()
            if step == first + count - 1:
                trainer.drain()  # in a trace the last step ends when all is done
    clock.mark()
    wall_s = clock.finish()
    *seconds, drain_s = clock.intervals()
    values = [None if x is None else x / loss_scale for x in _read(losses)]
    return StepsDone(
        seconds=tuple(seconds),
        losses=tuple(x if x is not None and math.isfinite(x) else None for x in values),
        nonfinite=tuple(first + k for k, x in enumerate(values) if x is not None and not math.isfinite(x)),
        samples=tuple(samples),
        left_out=tuple(skipped) if any(skipped) else (),
        wall_s=wall_s,
        drain_s=drain_s,
        started_s=began_s,
        positions=positions,
        series=(*(series for probe in probes for series in probe.stop()), *_waited(waits_s)),
    )


def _waited(waits_s: Sequence[float]) -> list[Series]:
    if not waits_s:
        return []
    source = "sleeps that --rank-speed and --straggler ask for"
    return [Series(name=SERIES, unit="s", better=None, values=tuple(waits_s), source=source)]


def _disturb(fault: Fault, loss: Tensor | None, elapsed_s: float) -> Tensor | None:
    if fault.kind == "slow":
        with annotated("slowed"):
            time.sleep(elapsed_s * max(0.0, fault.factor - 1))
    if fault.kind == "nan" and loss is not None:
        return torch.full_like(loss, math.nan)
    return loss


def _read(losses: list[Tensor | None]) -> list[float | None]:
    # One transfer after the round: reading a loss inside it would make the host wait for the device every step.
    present = [x for x in losses if x is not None]
    values = iter(torch.stack(present).tolist() if present else [])
    return [None if x is None else next(values) for x in losses]
