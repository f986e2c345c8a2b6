"""One rank examines one strategy: everything the laws need to know is done here once, in ranks that go on living."""

from __future__ import annotations

import gc
import hashlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parbench import parity, trials
from parbench.api import Job, RankContext, Strategy, Trainer
from parbench.counting import ByteCounter
from parbench.facts import StrategyFacts, TrialFacts

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
        references: one-process results by (trial, optimizer), kept by the rank from strategy to strategy.
        say: told what is being done.
    """

    def __init__(
        self,
        strategy: Strategy,
        ctx: RankContext,
        references: dict[tuple[str, str], parity.Reference],
        say: Callable[[str], None],
    ) -> None:
        self._strategy = strategy
        self._ctx = ctx
        self._references = references
        self._say = say
        self._seconds: dict[str, float] = {}

    def run(self) -> StrategyFacts:
        """Do everything and return what was seen."""
        strategy = self._strategy
        # Everything so far lives as long as the rank: without it, collecting after each wrapper costs milliseconds.
        gc.collect()
        gc.freeze()
        job = trials.PLAIN(_SEED, self._ctx.device)
        if (why := strategy.unsupported(job, self._ctx)) is not None:
            return StrategyFacts(agrees=strategy.agrees, repeats=strategy.repeats, unsupported=why)
        with self._timed("comparison with one process"):
            compared = tuple(self._trial(name) for name in trials.TRIALS)
        with self._timed("learning"):
            learning = self._losses(lambda: trials.LINEAR(_SEED, self._ctx.device), _LEARNING_STEPS)
        with self._timed("repetition"):
            first, second = (self._losses(self._plain, STEPS) for _ in range(2))
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

    def _plain(self) -> Job:
        return trials.PLAIN(_SEED, self._ctx.device)

    # ---- the same computation

    def _trial(self, name: str) -> TrialFacts:
        build, accumulate = trials.TRIALS[name]
        ctx = replace(self._ctx, accumulate=accumulate)
        if (why := self._strategy.unsupported(build(_SEED, ctx.device), ctx)) is not None:
            return TrialFacts(trial=name, unsupported=why)
        facts = parity.compare(
            self._strategy,
            lambda: build(_SEED, ctx.device),
            ctx,
            STEPS,
            self._reference(name) if ctx.rank == 0 else None,
            self._say,
        )
        return TrialFacts(trial=name, facts=facts)

    def _reference(self, name: str) -> Callable[[str], parity.Reference]:
        build, accumulate = trials.TRIALS[name]

        def of(optimizer: str) -> parity.Reference:
            if (name, optimizer) not in self._references:
                job = build(_SEED, self._ctx.device)
                job = replace(job, optimizer=parity.optimizers(job)[optimizer])
                alone = replace(self._ctx, accumulate=accumulate)
                self._references[name, optimizer] = parity.reference(job, alone, STEPS)
            return self._references[name, optimizer]

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
            for step in range(STEPS):
                losses.append(trainer.step(job.batch(step)))
                other_trainer.step(other_job.batch(step))
            trainer.drain()
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
        before = _surroundings()
        with self._alive(job) as (_, trainer):
            for step in range(2):
                trainer.step(job.batch(step))
            trainer.drain()
        found = _differences(before, _surroundings())
        if not self._strategy.consumes_model:
            found += _hooks(job.model) + _still_communicates(job)
        return tuple(found)

    def _failed_step(self) -> str | None:
        # One good step, then one whose loss raises in all ranks.
        calls = self._ctx.accumulate
        job = trials.failing(self._plain(), at_call=calls)
        trainer = self._strategy.wrap(job, self._ctx)
        trainer.step(job.batch(0))
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


def _surroundings() -> dict[str, object]:
    """Return what a strategy must leave as it found it."""
    groups = dist.distributed_c10d._world.pg_map if dist.is_initialized() else {}
    return {
        "threads": sorted(t.name for t in threading.enumerate()),
        "process groups": len(groups),
        "default dtype": str(torch.get_default_dtype()),
        "torch's global random state": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "Python's global random state": hash(random.getstate()),
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "compute threads": torch.get_num_threads(),
        "files in the working folder": sorted(path.name for path in Path.cwd().iterdir()),
        "module hooks for all modules": _global_hooks(),
    }


def _differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: {_short(before[name])} before, {_short(after[name])} after"
        for name in before
        if before[name] != after[name]
    ]


def _short(value: object) -> str:
    return str(value)[:80]


def _global_hooks() -> int:
    module = torch.nn.modules.module
    return sum(
        len(hooks) for name, hooks in vars(module).items() if name.startswith("_global_") and isinstance(hooks, dict)
    )


def _hooks(model: nn.Module) -> list[str]:
    found = []
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            if getattr(module, kind):
                found.append(f"{kind.strip('_')} on module {name or 'model'}")
    for name, parameter in model.named_parameters():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(parameter, kind, None):
                found.append(f"{kind.strip('_')} on parameter {name}")
    return found


def _still_communicates(job: Job) -> list[str]:
    batch = job.batch(0)
    device = next(job.model.parameters()).device
    with ByteCounter() as counter:
        job.loss(job.model(batch.inputs.to(device)), batch.to(device)).backward()  # type: ignore[no-untyped-call]
    return [f"a backward of the bare model still issues {one.op}" for one in counter.seen]
