"""A Case is one cell in one fresh launch: what is to be measured, and what has been so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parbench.columns import Column
from parbench.facts import Inspected
from parbench.launch.messages import Judged
from parbench.network.probe_link import LinkReport
from parbench.observed import Power, Weighed
from parbench.observed_trace import Traced
from parbench.record import Agreement, Agrees, Chosen, Failure, Status, WarmUp
from parbench.session import RoundSamples
from parbench.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell in one fresh launch.

    Attributes:
        cell: position of the cell in the sweep.
        repeat: which fresh launch of it.
        spec: what to measure.
        spec_id: its name.
    """

    cell: int
    repeat: int
    spec: RunSpec
    spec_id: str

    @property
    def label(self) -> str:
        """The case in words, for people who watch."""
        ranks = "1 rank" if self.spec.world_size == 1 else f"{self.spec.world_size} ranks"
        if self.spec.network is not None:
            ranks += f", {self.spec.network}"
        again = f", launch {self.repeat + 1}" if self.spec.repeats > 1 else ""
        return f"{self.spec.workload}/{self.spec.size} {self.spec.strategy}, {ranks}{again}"

    @property
    def asked(self) -> str:
        """What was asked of memory, in words."""
        spec = self.spec
        limit = "" if spec.memory_gib is None else f", with {spec.memory_gib:g} GiB for each"
        micro = "" if spec.accumulate == 1 else f" in {spec.accumulate} micro-batches each"
        return (
            f"asked for: {spec.workload}/{spec.size} in {spec.precision}, a global batch of {spec.global_batch_size} "
            f"over {spec.world_size} rank{'' if spec.world_size == 1 else 's'}{micro}{limit}"
        )


@dataclass(slots=True, kw_only=True)
class Measured:
    """What is known of a case so far; filled in while its launch lives."""

    case: Case
    status: Status = "complete"
    reason: str | None = None
    failure: Failure | None = None
    exit_code: int = 0
    agrees: Agrees = "closely"
    agreement: Agreement | None = None
    warm_up: WarmUp | None = None
    warm_up_rounds: list[RoundSamples] = field(default_factory=list)
    rounds: list[RoundSamples] = field(default_factory=list)
    held_out: Judged | None = None
    judged: RoundSamples | None = None
    inspected: tuple[Inspected, ...] = ()
    power: Power | None = None
    weighed: tuple[Weighed, ...] = ()
    traced: Traced | None = None
    trace_files: Mapping[str, str] = field(default_factory=dict)
    memory_files: Mapping[str, str] = field(default_factory=dict)
    traffic: Mapping[str, Column] = field(default_factory=dict)
    neighbour_cores: float | None = None
    weigh_reason: str | None = None
    shards: tuple[str, ...] = ()
    compile_s: float | None = None
    startup_s: float | None = None
    unit: str = "samples"
    units_per_sample: int = 1
    parameters: int = 0
    period: int = 1
    chosen: dict[str, Chosen] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    gpus: int = 0
    launch_kind: str = ""
    launch_world_size: int = 0
    interleaved_with: Sequence[str] = ()
    together_because: str = ""
    logs: dict[str, str] = field(default_factory=dict)
    teardown: str | None = None
    links: LinkReport | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be measured."""
        return self.status != "complete"

    @property
    def steps_done(self) -> int:
        """Measured steps so far."""
        return sum(r.steps for r in self.rounds)

    def end(self, status: Status, reason: str, exit_code: int, failure: Failure | None = None) -> None:
        """Note that the case ended early, and how."""
        self.status, self.reason, self.exit_code, self.failure = status, reason, exit_code, failure
