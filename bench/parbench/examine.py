"""One rank examines one strategy: everything the laws need to know is done here once, in ranks that go on living."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from parbench import parity, trials
from parbench.api import Job, RankContext, Strategy, Trainer
from parbench.counting import ByteCounter
from parbench.facts import StrategyFacts, TrialFacts
from parbench.surroundings import differences, hooks, still_communicates, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 5
_LEARNING_STEPS = 60
_SEED = 20


@final
class Examination:
    """Examines one strategy in this rank.

    Args:
        strategy: what is examined.
        ctx: this rank, in a group of the strategy's own.
        references: one-process results by (trial, optimizer, steps), kept by the rank from strategy to strategy.
        say: told what is being done.
    """

    def __init__(
        self,
        strategy: Strategy,
        ctx: RankContext,
        references: dict[tuple[str, str, int], parity.Reference],
        say: Callable[[str], None],
    ) -> None:
        self._strategy = strategy
        self._ctx = ctx
        self._references = references
        self._say = say
        # As many optimizer steps for a strategy that takes one in several.
        self._steps = STEPS * strategy.period
        self._seconds: dict[str, float] = {}

    def run(self) -> StrategyFacts:
        """Do everything and return what was seen."""
        strategy = self._strategy
        job = trials.PLAIN(_SEED, self._ctx.device)
        if (why := self._unsupported(job, self._ctx)) is not None:
            return StrategyFacts(agrees=strategy.agrees, repeats=strategy.repeats, unsupported=why)
        with self._timed("comparison with one process"):
            compared = tuple(self._trial(name) for name in trials.TRIALS)
        with self._timed("learning"):
            learning = self._losses(
                lambda: trials.LINEAR(_SEED, self._ctx.device), _LEARNING_STEPS * self._strategy.period
            )
        with self._timed("repetition"):
            first, second = (self._losses(self._plain, self._steps) for _ in range(2))
        with self._timed("two variants"):
            beside = self._beside()
        with self._timed("bytes"):
            counted, closed_form, unreadable = self._bytes()
        with self._timed("leftovers"):
            leftovers = self._leftovers()
        with self._timed("failed step"):
            failed_step = self._failed_step()
        return StrategyFacts(
            agrees=strategy.agrees,
            repeats=strategy.repeats,
            period=strategy.period,
            trials=compared,
            learning=learning,
            first=first,
            second=second,
            beside=beside,
            counted=counted,
            closed_form=closed_form,
            unreadable=unreadable,
            leftovers=leftovers,
            failed_step=failed_step,
            seconds=self._seconds,
        )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        self._say(f"examination: {what}")
        started_s = time.perf_counter()
        yield
        self._seconds[what] = time.perf_counter() - started_s

    def _unsupported(self, job: Job, ctx: RankContext) -> str | None:
        return self._strategy.impossible(job, ctx.world_size) or self._strategy.unsupported(job, ctx)

    def _plain(self) -> Job:
        return trials.PLAIN(_SEED, self._ctx.device)

    # ---- the same computation

    def _trial(self, name: str) -> TrialFacts:
        build, accumulate = trials.TRIALS[name]
        ctx = replace(self._ctx, accumulate=accumulate)
        if (why := self._unsupported(build(_SEED, ctx.device), ctx)) is not None:
            return TrialFacts(trial=name, unsupported=why)
        memory = self._strategy.memory(build(_SEED, ctx.device), ctx)
        facts = parity.compare(
            self._strategy,
            lambda: build(_SEED, ctx.device),
            ctx,
            self._steps,
            self._reference(name) if ctx.rank == 0 else None,
            self._say,
        )
        return TrialFacts(trial=name, facts=facts, memory=None if memory is None else asdict(memory))

    def _reference(self, name: str) -> Callable[[str], parity.Reference]:
        build, accumulate = trials.TRIALS[name]

        def of(optimizer: str) -> parity.Reference:
            key = (name, optimizer, self._steps)
            if key not in self._references:
                job = build(_SEED, self._ctx.device)
                job = replace(job, optimizer=parity.optimizers(job)[optimizer])
                alone = replace(self._ctx, accumulate=accumulate)
                self._references[key] = parity.reference(job, alone, self._steps)
            return self._references[key]

        return of

    # ---- losses

    def _losses(self, build: Callable[[], Job], steps: int) -> tuple[float | None, ...]:
        with self._alive(build()) as (job, trainer):
            losses = [trainer.step(job.batch(step)) for step in range(steps)]
            trainer.drain()
            return _floats(losses)

    def _beside(self) -> tuple[float | None, ...]:
        other = trials.LINEAR(_SEED + 1, self._ctx.device)
        with self._alive(self._plain()) as (job, trainer), self._alive(other) as (other_job, other_trainer):
            losses = []
            for step in range(self._steps):
                losses.append(trainer.step(job.batch(step)))
                trainer.drain()  # as the loop does before another variant steps; it must change nothing
                other_trainer.step(other_job.batch(step))
                other_trainer.drain()
            return _floats(losses)

    @contextmanager
    def _alive(self, job: Job) -> Iterator[tuple[Job, Trainer]]:
        trainer = self._strategy.wrap(job, self._ctx)
        try:
            yield job, trainer
        finally:
            trainer.close()
            del trainer
            gc.collect()

    # ---- bytes

    def _bytes(self) -> tuple[dict[str, float], dict[str, float] | None, tuple[str, ...]]:
        period = self._strategy.period
        with self._alive(self._plain()) as (job, trainer):
            # The closed form is of the job as it was before wrapping, and of a step once buckets have settled.
            closed = self._strategy.traffic(self._plain(), self._ctx)
            warm = 3 * period
            for step in range(warm):
                trainer.step(job.batch(step))
            trainer.drain()
            with ByteCounter() as counter:
                for step in range(warm, warm + period):
                    trainer.step(job.batch(step))
                trainer.drain()
        counted = {op: float(size) for op, size in counter.by_op().items()}
        expected = None if closed is None else {op: float(size) * period for op, size in closed.items() if size}
        return counted, expected, tuple(counter.unknown)

    # ---- traces left behind

    def _leftovers(self) -> tuple[str, ...]:
        torch.rand(3), random.random()  # a state that no seed gives
        job = self._plain()
        before = surroundings()
        with self._alive(job) as (_, trainer):
            for step in range(2 * self._strategy.period):
                trainer.step(job.batch(step))
            trainer.drain()
        found = differences(before, surroundings())
        if not self._strategy.consumes_model:
            found += hooks(job.model) + still_communicates(job)
        return tuple(found)

    def _failed_step(self) -> str | None:
        # One good step, then one whose loss raises in all ranks.
        armed = threading.Event()
        job = trials.failing(self._plain(), armed)
        trainer = self._strategy.wrap(job, self._ctx)
        trainer.step(job.batch(0))
        armed.set()
        try:
            trainer.step(job.batch(1))
        except RuntimeError as error:
            if "planned by the examination" not in str(error):
                return f"the step failed with {type(error).__name__} instead of the loss's own error"
        else:
            # Ranks that never compute a loss (other stages of a pipeline) may not notice.
            pass
        try:
            trainer.close()
            del trainer
            gc.collect()
            self._ctx.comm.barrier()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            return f"{type(error).__name__}: {error}"
        return None


def _floats(losses: list[Tensor | None]) -> tuple[float | None, ...]:
    return tuple(None if x is None else float(x) for x in losses)
