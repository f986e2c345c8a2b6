"""A Rank holds the variants alive in one process and carries out what the launcher says of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import msgspec
import torch
import torch.distributed as dist

from parbench import axes, parity, slowing
from parbench.api import Job, Probe, RankContext, Strategy, Trainer, Workload
from parbench.builder import Builder
from parbench.clock import clock_for
from parbench.comm import Comm
from parbench.computed import step_flops
from parbench.cost import cost_s
from parbench.examine import Examination
from parbench.facts import Inspected, StrategyFacts
from parbench.faults import Fault, parse_fault
from parbench.groups import Groups
from parbench.heartbeat import Heartbeat
from parbench.inspection import ClosedForms, closed_forms, inspect
from parbench.launch.messages import (
    Build,
    Built,
    Clear,
    Collectives,
    Command,
    Done,
    Drop,
    Energy,
    Evaluate,
    Examine,
    Idle,
    Inspect,
    Judged,
    Leave,
    Locate,
    Metered,
    Parity,
    ParityDone,
    Reply,
    Seat,
    Steps,
    StepsDone,
    Trace,
    TraceDone,
    Weigh,
    WeighDone,
)
from parbench.loading import Loader
from parbench.loop import run_steps
from parbench.memory_rank import MemoryRank
from parbench.memory_snapshot import snapshot
from parbench.metering import Metering
from parbench.network.collective_rank import CollectiveRank
from parbench.powerplan import readers
from parbench.randomness import Randomness
from parbench.registry import Registry
from parbench.spec import RunSpec
from parbench.suitability import unsuitable
from parbench.support import Support
from parbench.trace_rank import TraceRank

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """One strategy on one job, alive in this rank; `trainer` is None on ranks that do not take part."""

    spec: RunSpec
    strategy: Strategy
    workload: Workload
    ctx: RankContext | None
    job: Job | None
    trainer: Trainer | None
    closed: ClosedForms | None
    randomness: Randomness
    probes: tuple[Probe, ...]
    loader: Loader | None


@final
class Rank:
    """The variants alive in this process, and what can be done with them."""

    def __init__(self, seat: Seat, heartbeat: Heartbeat) -> None:
        self.device = torch.device(seat.device)
        self._seat = seat
        self._heartbeat = heartbeat
        self._fault = parse_fault(seat.fault)
        self._builder = Builder(self.device)
        self._registry = Registry([Path(p) for p in seat.plugins])
        self._variants: dict[int, _Variant] = {}
        self._references: dict[tuple[object, ...], parity.Reference] = {}
        self._groups = _groups(seat)
        self._collectives = CollectiveRank(seat, self._groups, self._say)
        self._support = Support()
        self._metering = Metering(self.device)
        self._tracing = TraceRank(seat, self.device, self._metering)
        self._memory = MemoryRank(self.device) if seat.weigh else None
        self._trial_references: dict[tuple[str, str, int], parity.Reference] = {}
        # Torch and all that a rank starts with stays: looking through it takes tenths of a second, in a forked process
        # more (every object is copied when it is looked at).
        gc.freeze()

    @property
    def step(self) -> int | None:
        """The training step being taken; None outside steps."""
        return self._heartbeat.step

    def execute(self, command: Command) -> Reply:
        """Carry out one command."""
        self._heartbeat.step = None
        self._heartbeat.phase = type(command).__name__.lower()
        match command:
            case Build():
                return self._build(command)
            case Collectives():
                return self._collectives.run(command)
            case Examine():
                return self._examine(command)
            case Parity():
                return self._parity(command)
            case Steps():
                return self._steps(command)
            case Inspect():
                return self._inspect(command)
            case Trace():
                return self._trace(command)
            case Weigh():
                return self._weigh(command)
            case Locate():
                return Metered(place=self._metering.place())
            case Idle():
                mine = readers(command.places).get(self._seat.rank, ())
                return Metered(readings=self._metering.idle(mine, command.seconds) if mine else ())
            case Energy():
                return self._energy(command)
            case Evaluate():
                return self._evaluate(command)
            case Drop():
                self._drop(command.variant)
                return Done()
            case Clear() | Leave():
                self._collectives.close()
                for variant in list(self._variants):
                    self._drop(variant)
                return Done()

    def _build(self, command: Build) -> Reply:
        started_s = time.perf_counter()
        spec = command.spec
        strategy = self._registry.resolve("strategy", spec.strategy)
        workload = self._registry.resolve("workload", spec.workload)
        group = self._groups.first(spec.world_size) if spec.world_size > 1 else None
        member = self._seat.rank < spec.world_size
        ctx = job = trainer = closed = why = never = loader = None
        if member:
            ctx = self._context(spec, group)
            why = workload.unsupported() or axes.unsupported(spec)
            why = why or slowing.unsupported(spec.rank_speed, self.device.type)
            shapes = self._builder.shapes(workload, spec) if why is None else None
            if shapes is not None:
                never = strategy.impossible(shapes, spec.world_size)
                why = never or strategy.unsupported(shapes, ctx) or unsuitable(strategy, shapes, ctx.dtype, self.device)
            if shapes is not None and why is None:
                closed = closed_forms(strategy, shapes, ctx)
                why = self._support.missing(strategy, shapes, ctx)
            if why is None:
                if self._memory is not None:
                    self._memory.begin()
                job = self._builder.full(workload, spec)
                job = job if self._memory is None else self._memory.marked(job)
                if spec.data_workers or spec.data_delay_s:
                    pin = self.device.type == "cuda"
                    loader = Loader(job.batch, spec.data_workers, spec.data_delay_s, pin=pin)
                    job = replace(job, batch=loader)
                trainer = strategy.wrap(job, ctx)
        # What is unsupported is kept too, until it is dropped.
        self._variants[command.variant] = _Variant(
            spec=spec,
            strategy=strategy,
            workload=workload,
            ctx=ctx,
            job=job,
            trainer=trainer,
            closed=closed,
            probes=tuple(self._registry.resolve("probe", name) for name in spec.probes),
            randomness=Randomness(self.device),
            loader=loader,
        )
        self._watch_groups()
        return Built(
            unsupported=why,
            impossible=never is not None,
            agrees=strategy.agrees,
            period=strategy.period,
            unit=job.unit if job else "samples",
            units_per_sample=job.units_per_sample if job else 1,
            parameters=sum(p.numel() for p in job.model.parameters()) if job else 0,
            shards=tuple(strategy.shards),
            wall_s=time.perf_counter() - started_s,
            member=member,
        )

    def _context(self, spec: RunSpec, group: dist.ProcessGroup | None) -> RankContext:
        rank = self._seat.rank
        return RankContext(
            rank=rank,
            local_rank=self._seat.local_rank,
            world_size=spec.world_size,
            device=self.device,
            dtype=_DTYPES[spec.precision],
            comm=Comm(group, rank, spec.world_size, self._groups),
            accumulate=spec.accumulate,
            generator=torch.Generator().manual_seed(spec.seed),
            speeds=() if spec.rank_speed is None else slowing.parse_speeds(spec.rank_speed)[: spec.world_size],
        )

    def _examine(self, command: Examine) -> Reply:
        strategy = self._registry.resolve("strategy", command.strategy)
        group = self._groups.first(command.world_size) if command.world_size > 1 else None
        if self._seat.rank >= command.world_size:
            return StrategyFacts(agrees=strategy.agrees, repeats=strategy.repeats, member=False)
        spec = RunSpec(workload="", strategy=command.strategy, world_size=command.world_size)
        return Examination(strategy, self._context(spec, group), self._trial_references, self._say).run()

    def _parity(self, command: Parity) -> Reply:
        variant = self._variants[command.variant]
        if variant.ctx is None:
            return ParityDone()
        ctx, spec = variant.ctx, variant.spec
        compiled_s = self._builder.compiled_s

        def build() -> Job:
            return self._builder.full(variant.workload, spec)

        def reference(optimizer: str) -> parity.Reference:
            key = (spec.workload, spec.size, spec.precision, spec.global_batch_size, spec.accumulate, spec.seed)
            full_key = (*key, command.steps, optimizer)
            if full_key not in self._references:
                job = self._builder.reference(variant.workload, spec)
                self._references[full_key] = _reference(job, ctx, command.steps, optimizer, self._say)
            return self._references[full_key]

        with Randomness(self.device):
            facts = parity.compare(
                variant.strategy,
                build,
                ctx,
                command.steps,
                reference if ctx.rank == 0 else None,
                self._say,
            )
        return ParityDone(facts=facts, compile_s=self._builder.compiled_s - compiled_s)

    def _say(self, phase: str) -> None:
        self._heartbeat.phase = phase

    def _steps(self, command: Steps) -> Reply:
        variant = self._variants[command.variant]
        if variant.ctx is None or variant.job is None or variant.trainer is None:
            return StepsDone(member=False)
        if gc.isenabled():
            gc.collect()
            gc.disable()  # nothing may stall a step; there is one collection before every round
        compiled_s = self._builder.compiled_s
        if variant.loader is not None:
            variant.loader.begin(until=command.first + command.count)
        with variant.randomness:
            done = run_steps(
                variant.trainer,
                variant.job.batch,
                variant.ctx,
                clock_for(self.device),
                first=command.first,
                count=command.count,
                progress=self._heartbeat,
                fault=self._fault_of(variant.spec.strategy),
                probes=variant.probes,
                loss_scale=variant.job.loss_scale,
                pace=slowing.pace_of(
                    self._seat.rank, variant.spec.rank_speed, variant.spec.straggler, variant.spec.seed
                ),
            )
        waited = () if variant.loader is None else (variant.loader.waited(),)
        return msgspec.structs.replace(
            done, compile_s=self._builder.compiled_s - compiled_s, series=(*done.series, *waited)
        )

    def _energy(self, command: Energy) -> Reply:
        if self._variants[command.variant].trainer is None:
            return Metered(member=False)
        mine = readers(command.places).get(self._seat.rank, ())
        if mine:
            self._metering.start(mine)
        done = self._stepped(Steps(variant=command.variant, first=command.first, count=command.count))
        readings = self._metering.stop(done.started_s, done.started_s + done.wall_s, command.count) if mine else ()
        return Metered(readings=readings, samples=sum(done.samples))

    def _trace(self, command: Trace) -> Reply:
        variant = self._variants[command.variant]
        if variant.trainer is None or variant.job is None:
            return TraceDone(member=False)
        mesh = variant.strategy.mesh(variant.spec.world_size)

        def steps(first: int) -> StepsDone:
            return self._stepped(Steps(variant=command.variant, first=first, count=command.count))

        parts = variant.strategy, variant.trainer, variant.job
        return self._tracing.trace(command, *parts, mesh, variant.randomness, steps)

    def _stepped(self, command: Steps) -> StepsDone:
        done = self._steps(command)
        if not isinstance(done, StepsDone):
            raise TypeError(f"steps were answered by {type(done).__name__}")
        return done

    def _weigh(self, command: Weigh) -> Reply:
        variant = self._variants[command.variant]
        if self._memory is None or variant.trainer is None or variant.job is None or variant.closed is None:
            return WeighDone()
        into = Path(command.snapshot) / f"rank{self._seat.rank}.pickle" if command.snapshot else None
        with variant.randomness, snapshot(into, self.device):
            found = self._memory.weigh(
                variant.trainer, variant.job.batch, variant.strategy.period, variant.closed.memory
            )
        return WeighDone(weighed=found)

    def _inspect(self, command: Inspect) -> Reply:
        variant = self._variants[command.variant]
        if variant.trainer is None or variant.job is None or variant.closed is None:
            return Inspected(member=False)
        with variant.randomness:
            found = inspect(variant.trainer, variant.job, variant.closed, variant.strategy.period)
        if variant.ctx is not None:
            found = msgspec.structs.replace(found, cost_s=cost_s(variant.ctx, self._heartbeat, variant.probes))
        if self._seat.rank != 0:
            return found
        with Randomness(self.device):
            return msgspec.structs.replace(found, flops=step_flops(self._builder, variant.workload, variant.spec))

    def _fault_of(self, strategy: str) -> Callable[[int], Fault | None]:
        fault, rank = self._fault, self._seat.rank

        def at(step: int) -> Fault | None:
            return fault if fault is not None and fault.acts(rank, step, strategy) else None

        return at

    def _evaluate(self, command: Evaluate) -> Reply:
        variant = self._variants[command.variant]
        if variant.trainer is None or variant.job is None:
            return Judged(reason="not a member")
        parameters, buffers = variant.trainer.full_parameters(), variant.trainer.full_buffers()
        if self._seat.rank != 0:
            return Judged(reason="rank 0 judges")
        if variant.job.held_out is None:
            return Judged(reason=variant.job.held_out_reason)
        with Randomness(self.device):
            model = self._builder.plain(variant.workload, variant.spec).model
            if (why := parity.fill(model, parameters, buffers)) is not None:
                return Judged(reason=why)
            values = variant.job.held_out(model)
        finite = {name: value for name, value in values.items() if value - value == 0}
        reason = None if len(finite) == len(values) else "the trained model gives no finite loss"
        return Judged(values=finite, reason=reason)

    def _drop(self, number: int) -> None:
        variant = self._variants.pop(number)
        if variant.trainer is not None:
            variant.trainer.close()
        if variant.loader is not None:
            variant.loader.close()
        self._watch_groups()
        # The wrapper must be gone before its group is: destroying the group under a live DDP object can hang.
        del variant
        gc.collect()

    def _watch_groups(self) -> None:
        world = [dist.group.WORLD] if dist.group.WORLD is not None else []
        self._heartbeat.watch([*world, *self._groups.all])


def _reference(job: Job, ctx: RankContext, steps: int, optimizer: str, say: Callable[[str], None]) -> parity.Reference:
    return parity.reference(replace(job, optimizer=parity.optimizers(job)[optimizer]), ctx, steps, say)


def _groups(seat: Seat) -> Groups:
    if seat.network is None:
        return Groups(seat.group_timeout_s)
    return Groups(seat.group_timeout_s, seat.network.address, seat.network.alpha_s)
