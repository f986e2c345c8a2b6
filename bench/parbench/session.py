"""A Session holds live ranks with several variants in them and steps any of them, round by round.

with Session(world_size=2) as session:
    ddp = session.add(RunSpec(workload="digits", strategy="ddp"))
    ddp.parity(steps=3)
    ddp.round(10)          # warm-up is whatever you leave out
    print(ddp.round(10).wall_s)
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import final

from parbench.agreement import agreement
from parbench.errors import ParbenchError, UsageError
from parbench.facts import Inspected, StrategyFacts
from parbench.launch.local import LocalRanks
from parbench.launch.messages import (
    Build,
    Built,
    Drop,
    Energy,
    Evaluate,
    Examine,
    Idle,
    Inspect,
    Judged,
    Locate,
    Metered,
    Parity,
    ParityDone,
    Reply,
    Steps,
    StepsDone,
    Trace,
    TraceDone,
    Weigh,
    WeighDone,
)
from parbench.launch.place import Machine, place
from parbench.launch.ranks import Ranks
from parbench.launch.stopping import StopRequest
from parbench.network.admission import admitted, linked
from parbench.network.build import Links
from parbench.observed import Weighed
from parbench.powerplan import Place
from parbench.record import Agreement, Agrees, Chosen
from parbench.registry import Registry
from parbench.resolve import resolve
from parbench.rounds import RoundSamples as RoundSamples
from parbench.spec import Backend, Device, RunSpec
from parbench.suite import of_specs


@final
class Variant:
    """One strategy on one job, alive in the ranks of a session; made by `Session.add`."""

    def __init__(self, session: Session, number: int, spec: RunSpec, built: Sequence[Built]) -> None:
        self.spec = spec
        self._session = session
        self._number = number
        self._built = built[0]
        self.build_s = max(b.wall_s for b in built)
        self.steps_taken = 0
        self.first_step_s: float | None = None
        self.compile_s = 0.0
        self._closed = False
        self.unsupported = next((b.unsupported for b in built if b.unsupported), None)
        self.impossible = any(b.impossible for b in built)

    @property
    def agrees(self) -> Agrees:
        """How closely the strategy claims to train as one process does."""
        return self._built.agrees

    @property
    def period(self) -> int:
        """Steps after which its pattern repeats; rounds are multiples of it."""
        return self._built.period

    @property
    def unit(self) -> str:
        """What is counted: "samples" or "tokens"."""
        return self._built.unit

    @property
    def units_per_sample(self) -> int:
        """How many of them one sample is."""
        return self._built.units_per_sample

    @property
    def parameters(self) -> int:
        """Parameters rank 0 holds."""
        return self._built.parameters

    @property
    def shards(self) -> tuple[str, ...]:
        """What the ranks share out instead of repeating."""
        return self._built.shards

    def parity(self, steps: int = 3) -> Agreement:
        """Compare with one process over `steps` steps from the first weights; the variant itself is not stepped."""
        self._check(steps)
        replies = self._session.call(Parity(variant=self._number, steps=steps))
        done = [r for r in replies if isinstance(r, ParityDone) and r.facts]
        self.compile_s += max(r.compile_s for r in done)
        facts = [r.facts for r in done]
        return agreement(self._built.agrees, facts, steps, self.spec.precision, compiled=self.spec.compile)

    def round(self, steps: int) -> RoundSamples:
        """Take `steps` consecutive steps between two barriers and return their raw samples."""
        self._check(steps)
        first = self.steps_taken
        replies = self._session.call(Steps(variant=self._number, first=first, count=steps))
        members = tuple(r for r in replies if isinstance(r, StepsDone) and r.member)
        self.steps_taken += steps
        self.compile_s += max(r.compile_s for r in members)
        if self.first_step_s is None:
            self.first_step_s = max(r.seconds[0] for r in members)
        nonfinite = sorted({step for r in members for step in r.nonfinite})
        means = [_mean(column) for column in zip(*(r.losses for r in members), strict=True)]
        return RoundSamples(
            first_step=first,
            samples=_trained(members),
            losses=tuple(None if first + k in nonfinite else mean for k, mean in enumerate(means)),
            ranks=members,
            nonfinite=tuple(nonfinite),
        )

    def inspect(self) -> tuple[Inspected, ...]:
        """Take one more period of steps and return what each member rank sent, held and computed."""
        self._check()
        replies = self._session.call(Inspect(variant=self._number))
        return tuple(r for r in replies if isinstance(r, Inspected) and r.member)

    def trace(self, steps: int, folder: Path, *, execution: bool = False) -> tuple[TraceDone, ...]:
        """Count a period of steps, take `steps` more under the profiler and return what each member rank wrote of them.

        Args:
            steps: how many; their events are held in memory until they are written.
            folder: where ranks put their files.
            execution: whether PyTorch's execution trace is wanted too.
        """
        self._check(steps)
        replies = self._session.call(
            Trace(
                variant=self._number,
                first=self.steps_taken,
                count=steps,
                folder=str(folder),
                execution=execution,
            )
        )
        self.steps_taken += self.period + steps
        return tuple(r for r in replies if isinstance(r, TraceDone) and r.member)

    def energy(self, steps: int, places: Sequence[Place]) -> tuple[Metered, ...]:
        """Take `steps` steps and return what each member rank read of the power of that, where it reads for its host.

        Args:
            steps: how many; short windows give estimates.
            places: where all ranks of the session are, as they answered `Locate`.
        """
        self._check(steps)
        mine = tuple(places[: self.spec.world_size])
        replies = self._session.call(Energy(variant=self._number, first=self.steps_taken, count=steps, places=mine))
        self.steps_taken += steps
        return tuple(r for r in replies if isinstance(r, Metered) and r.member)

    def weigh(self, snapshot: Path | None = None) -> tuple[Weighed, ...]:
        """Take a few steps and return the memory of each member rank; the session was opened with `weigh`.

        Args:
            snapshot: folder into which ranks on GPUs write what their allocators did; None keeps nothing.
        """
        self._check()
        replies = self._session.call(Weigh(variant=self._number, snapshot=str(snapshot or "")))
        return tuple(r.weighed for r in replies if isinstance(r, WeighDone) and r.weighed is not None)

    def held_out(self) -> Judged:
        """Return loss and accuracy of the present weights on held-out data, or why there are none."""
        self._check()
        replies = self._session.call(Evaluate(variant=self._number))
        if not isinstance(replies[0], Judged):
            raise ParbenchError(f"rank 0 answered {type(replies[0]).__name__} to Evaluate")
        return replies[0]

    def close(self) -> None:
        """Release the variant in every rank."""
        if not self._closed:
            self._closed = True
            self._session.call(Drop(variant=self._number))

    def _check(self, steps: int = 1) -> None:
        """Refuse what would end the ranks."""
        if self.unsupported is not None:
            raise UsageError(f"{self.spec.strategy} cannot run here: {self.unsupported}")
        if self._closed:
            raise UsageError(f"this variant ({self.spec.strategy}) is closed; add it to the session again")
        if steps < 1:
            raise UsageError(f"steps={steps}: at least 1 is needed")


@final
class Session:
    """Starts ranks once and keeps them until it is closed.

    Args:
        world_size: ranks to start.
        device: where they compute.
        backend: what moves their tensors.
        threads: compute threads of each rank.
        timeout_s: seconds without progress after which everything is ended.
        plugins: files whose strategies and workloads may be named.
        log_folder: where the ranks write what they print; a temporary folder unless given, which is removed unless a
            rank fails.
        stop: asked while waiting; made here if not given.
        ranks: ranks that already run (under torchrun); none are started then.
        network: links between the ranks, such as "100mbit" or "rate=312mbit alpha=1ms"; by default they are as they
            are.
        weigh: whether the ranks give freed memory back, so that `Variant.weigh` tells what they hold.
        memory_gib: the most memory that each rank may take besides what it begins with.

    Raises:
        UsageError: the network cannot be meant, or does not go with the rest.
        MissingError: the device or backend is not there.
        RankFailed: a rank raised, exited or was killed; the session is over.
        Stuck: nothing moved until the deadline; the session is over.
    """

    def __init__(
        self,
        world_size: int = 2,
        *,
        device: Device = "auto",
        backend: Backend = "auto",
        threads: int = 1,
        timeout_s: float = 120.0,
        plugins: Sequence[Path] = (),
        log_folder: Path | None = None,
        stop: StopRequest | None = None,
        ranks: Ranks | None = None,
        network: str | None = None,
        weigh: bool = False,
        memory_gib: float | None = None,
    ) -> None:
        self.registry = Registry(plugins)
        shaped = admitted(network, world_size, backend)
        if shaped and ranks is not None:
            raise UsageError(
                f"network={network!r} shapes links between ranks that a session starts itself; these run already: "
                "leave one of both out"
            )
        placement = place(device, linked(backend, shaped is not None), world_size, Machine.here())
        self.chosen: dict[str, Chosen] = dict(placement.chosen)
        self.placement = placement
        self._network = shaped
        self._numbers = 0
        self._closed = False
        self._links = Links.make(shaped, world_size) if shaped and ranks is None else None
        self.chosen |= self._links.chosen if self._links else {}
        try:
            self.ranks: Ranks = ranks or LocalRanks.start(
                world_size,
                placement,
                threads=threads,
                timeout_s=timeout_s,
                stop=stop or StopRequest(),
                plugins=self.registry.plugins,
                fault="" if weigh else os.environ.get("PARBENCH_FAULT", ""),
                log_folder=log_folder,
                network=self._links.seats if self._links else (),
                weigh=weigh,
                memory_bytes=None if memory_gib is None else int(memory_gib * 2**30),
            )
        except BaseException:
            self._unlink()
            raise

    def add(self, spec: RunSpec, *, refuse: bool = True) -> Variant:
        """Build the job of `spec` in the ranks and spread it; check `unsupported` of what is returned.

        Args:
            spec: what to build.
            refuse: whether to raise where the strategy can never run the job on so many ranks; else the variant that is
                returned says so.

        Raises:
            UsageError: the spec cannot be built in this session.
        """
        spec = resolved(spec, self.registry, refuse=refuse)
        self._check_size(spec.world_size)
        have = self._network.text if self._network else None
        if spec.network not in (None, have):
            raise UsageError(
                f"the spec wants network {spec.network}, this session has {have or 'none'}; use Session(network=...)"
            )
        number = self._numbers
        self._numbers += 1
        replies = self.call(Build(variant=number, spec=spec))
        variant = Variant(self, number, spec, [r for r in replies if isinstance(r, Built)])
        if variant.unsupported is not None:
            variant.close()
        return variant

    def examine(self, strategy: str, world_size: int) -> list[StrategyFacts]:
        """Examine a strategy in the first `world_size` ranks, for the laws of `parbench.conformance`.

        Raises:
            UsageError: the session has fewer ranks.
        """
        self._check_size(world_size)
        replies = self.call(Examine(strategy=strategy, world_size=world_size))
        return [r for r in replies if isinstance(r, StrategyFacts) and r.member]

    def _check_size(self, wanted: int) -> None:
        if wanted > self.ranks.world_size:
            raise UsageError(
                f"the spec wants {wanted} ranks, this session has {self.ranks.world_size}; "
                f"use Session(world_size={wanted})"
            )

    def call(
        self,
        command: Build | Examine | Parity | Steps | Inspect | Trace | Weigh | Locate | Idle | Energy | Evaluate | Drop,
    ) -> list[Reply]:
        """Let every rank carry out one command; used by variants."""
        if self._closed:
            raise UsageError("the session is closed; open a new one")
        return self.ranks.call(command)

    def close(self) -> None:
        """Let the ranks release everything and end."""
        if not self._closed:
            self._closed = True
            try:
                self.ranks.leave()
            finally:
                self._unlink()

    def kill(self) -> None:
        """End the ranks at once."""
        self._closed = True
        try:
            self.ranks.kill()
        finally:
            self._unlink()

    def _unlink(self) -> None:
        if self._links is not None:
            self._links.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


def resolved(spec: RunSpec, registry: Registry, *, refuse: bool = True) -> RunSpec:
    """Return `spec` with its ranks and batch size settled; names and numbers are checked.

    Raises:
        UsageError: a name or number is not one of those allowed.
    """
    return resolve(of_specs((spec,)), registry, refuse=refuse).specs[0]


def _trained(members: Sequence[StepsDone]) -> tuple[int, ...]:
    """Return per step the samples that some rank trained on."""
    missing = [r.left_out for r in members if r.left_out]
    return tuple(held - sum(column) for held, *column in zip(members[0].samples, *missing, strict=True))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [x for x in values if x is not None]
    return math.fsum(present) / len(present) if present else None
