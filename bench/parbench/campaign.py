"""A Campaign is one sweep under way: its cases, what has become of them, and where they are stored."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import final

import msgspec
import psutil

from parbench import environment, sweepfile
from parbench.cases import Case, Measured
from parbench.document import document
from parbench.errors import StoreError, worst_exit_code
from parbench.events import Event, Listener
from parbench.grouping import Group, alone, grouped
from parbench.launch.failure import Stopped
from parbench.launch.place import Machine, place
from parbench.launch.ranks import Ranks
from parbench.launch.stopping import StopRequest
from parbench.measure import Launch
from parbench.memory_launch import alone_in, weighed_or_why
from parbench.metrics import Cell, combine
from parbench.network.admission import linked
from parbench.network.probe_link import LinkReport
from parbench.record import Chosen, Environment, RunRecord
from parbench.recording import record_of, steps_of
from parbench.registry import Registry
from parbench.session import Session
from parbench.spec import RunSpec, spec_id
from parbench.statistics import median_interval
from parbench.store import Store, find_runs, new_run_id, safe_name
from parbench.suite import Suite
from parbench.sweepfile import Owner, SweepFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a sweep came to.

    Attributes:
        records: one per case, those taken over from a sweep cut short included.
        cells: the same, fresh launches of a cell together.
        path: the suite's folder of results.
        document: the JSON document of the sweep.
        exit_code: of everything that went wrong, the code that takes precedence.
        store_error: why some results could not be stored; None if all were.
        notes: sentences a reader should know.
        leads: False in the ranks of a torchrun launch that only carry out what rank 0 says; they report nothing.
    """

    records: list[RunRecord]
    cells: list[Cell]
    path: Path
    document: bytes
    exit_code: int
    store_error: str | None = None
    notes: list[str] = field(default_factory=list)
    leads: bool = True


@final
class Campaign:
    """One sweep under way."""

    def __init__(
        self,
        suite: Suite,
        out: Path,
        registry: Registry,
        listener: Listener,
        stop: StopRequest,
        ranks: Ranks | None,
        links: Mapping[tuple[str, int], LinkReport] = MappingProxyType({}),
        batches: Mapping[str, Chosen] = MappingProxyType({}),
    ) -> None:
        self._suite = suite
        self._out = out
        self._folder = out / safe_name(suite.name)
        self._registry = registry
        self._listener = listener
        self._stop = stop
        self._ranks = ranks
        self._links = links
        self._batches = batches
        self._environment = environment.capture()
        self._records: list[RunRecord] = []
        self._codes: list[int] = []
        self._store_errors: list[str] = []
        self._notes = list(suite.notes)
        self._resumed: Mapping[tuple[str, int], str] = {}
        repeats = max((spec.repeats for spec in suite.specs), default=1)
        self._cases = [
            Case(cell=k, repeat=repeat, spec=spec, spec_id=spec_id(spec))
            for repeat in range(repeats)
            for k, spec in enumerate(suite.specs)
            if repeat < spec.repeats
        ]
        self._file = SweepFile(
            id=new_run_id(),
            status="running",
            suite=suite.name,
            machine=self._environment.fingerprint,
            software=self._environment.software,
            planned=tuple((case.spec_id, case.repeat) for case in self._cases),
            owner=Owner.here(),
            fault=os.environ.get("PARBENCH_FAULT", ""),
        )

    def run(self, *, fresh: bool) -> Outcome:
        """Measure what is left to measure."""
        taken = {} if fresh else self._take_up()
        self._tell("plan")
        self._save()
        for case in self._cases:
            if (found := taken.get((case.spec_id, case.repeat))) is not None:
                self._records.append(found)
                self._tell("skip", case, message=f"finished before, as {found.id}")
        left = [case for case in self._cases if (case.spec_id, case.repeat) not in taken]
        try:
            for group in grouped(left, _placed, self._parameter_bytes, psutil.virtual_memory().available):
                self._measure(group)
        except Stopped as stopped:
            self._codes.append(stopped.exit_code)
            self._file = msgspec.structs.replace(self._file, status="interrupted")
            self._save()
        else:
            self._file = msgspec.structs.replace(self._file, status="complete", cells=tuple(self._cells()))
            self._save()
        return self._outcome()

    def _take_up(self) -> dict[tuple[str, int], RunRecord]:
        """Return the finished cases of the same sweep, if one like it was cut short, and go on under its id."""
        before = sweepfile.unfinished(self._folder, self._file) if self._folder.is_dir() else None
        if before is None:
            return {}
        self._file = msgspec.structs.replace(before, status="running", owner=Owner.here())
        mine = [r.record for r in find_runs(self._folder)[0] if r.record.launch.get("sweep") == before.id]
        self._resumed = {(r.spec_id, r.repeat): r.id for r in mine if r.status == "interrupted"}
        taken = {(r.spec_id, r.repeat): r for r in mine if r.status in ("complete", "unsupported")}
        if taken:
            self._notes.append(f"{len(taken)} of {len(self._cases)} cases are taken over from a sweep cut short")
        return taken

    def _measure(self, group: Group) -> None:
        """Measure cases together; whenever one breaks its launch, the others get a new one without it."""
        pending = [self._begun(case, group) for case in group.cases]
        while pending:
            started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            with tempfile.TemporaryDirectory(prefix="parbench-", ignore_cleanup_errors=True) as logs:
                opened = partial(self._open, pending, Path(logs))
                launch = Launch(opened, pending, self._on_phase, self._on_round, Path(logs))
                try:
                    again = launch.run()
                    ended = [m for m in pending if m.status == "complete" and not any(m is one for one in again)]
                    self._weigh(ended, Path(logs))
                except Stopped:
                    self._finish(pending, started_at)
                    raise
                retried = {id(m) for m in again}
                self._finish([m for m in pending if id(m) not in retried], started_at)
            if launch.too_large:
                for m in again:
                    self._measure(alone(m.case, "launched alone: together with the others memory ran out"))
                return
            pending = [self._begun(m.case, group) for m in again]

    def _begun(self, case: Case, group: Group) -> Measured:
        found = self._batches.get(case.spec_id)
        return Measured(
            case=case,
            together_because=group.because,
            links=self._links.get((case.spec.network or "", case.spec.world_size)),
            chosen={} if found is None else {"global_batch_size": found},
        )

    def _open(self, pending: Sequence[Measured], logs: Path) -> Session:
        spec = pending[0].case.spec
        return Session(
            max(m.case.spec.world_size for m in pending),
            device=spec.device,
            backend=spec.backend,
            threads=spec.threads,
            timeout_s=spec.timeout_s,
            plugins=self._registry.plugins,
            log_folder=logs,
            stop=self._stop,
            ranks=self._ranks,
            network=spec.network,
            memory_gib=spec.memory_gib,
        )

    def _weigh(self, measured: Sequence[Measured], folder: Path) -> None:
        """Measure the memory of each case, in fresh ranks that hold nothing else; files go into `folder`."""
        for number, m in enumerate(measured):
            if not m.case.spec.memory:
                m.weigh_reason = "it was left out (--no-memory)"
            elif self._ranks is not None:
                m.weigh_reason = "the ranks were started by another program: memory needs fresh ones that hold one case"
            else:
                self._on_phase(m, "memory")
                into = folder / f"memory{number}" if m.case.spec.memory_snapshot else None
                found = weighed_or_why(alone_in(self._registry, self._stop), m.case.spec, into)
                m.weighed, m.weigh_reason = ((), found) if isinstance(found, str) else (found, None)
                written = sorted(into.glob("*.pickle")) if into is not None and into.is_dir() else []
                m.memory_files = {f"memory/{one.name}": str(one) for one in written}

    def _finish(self, ended: Sequence[Measured], started_at: str) -> None:
        """Record and store cases that have ended."""
        for m in ended:
            devices = {f"rank {k}": name for k, name in enumerate(m.devices) if name != "cpu"}
            record = record_of(
                m,
                run_id=new_run_id(),
                suite=self._suite.name,
                started_at=started_at,
                environment=self._environment_with(devices),
                resolved_suite=self._suite.document,
                sweep=self._file.id,
                resumed_from=self._resumed.get((m.case.spec_id, m.case.repeat)),
            )
            self._records.append(record)
            self._codes.append(m.exit_code)
            folder = self._store(m, record)
            self._tell("case", m.case, message=_ending(m, folder))
            for warned in record.warnings:
                self._tell("warning", m.case, message=f"{warned.code}: {warned.message}")

    def _parameter_bytes(self, spec: RunSpec) -> int:
        """Return the bytes of the model's parameters, from its shapes alone."""
        import torch

        workload = self._registry.resolve("workload", spec.workload)
        if workload.unsupported() is not None:
            return 0
        batch_size = spec.global_batch_size or workload.default_batch_size(spec.size)
        job = workload.build(spec.size, spec.seed, torch.device("meta"), batch_size)
        return sum(p.numel() * p.element_size() for p in job.model.parameters())

    def _environment_with(self, devices: Mapping[str, str]) -> Environment:
        return environment.capture(devices=devices)

    def _store(self, m: Measured, record: RunRecord) -> Path | None:
        try:
            files = {
                name: Path(path) for name, path in (*m.logs.items(), *m.trace_files.items(), *m.memory_files.items())
            }
            return Store(self._out).write(record, steps=steps_of(m), files=files, traffic=m.traffic)
        except StoreError as error:
            self._store_errors.append(str(error))
            self._codes.append(error.exit_code)
            return None

    def _save(self) -> None:
        try:
            Store(self._folder).write_document(sweepfile.file_name(self._file.id), sweepfile.encode(self._file))
        except StoreError as error:
            self._store_errors.append(str(error))
            self._codes.append(error.exit_code)

    def _outcome(self) -> Outcome:
        records, cells = self._in_order(), self._cells()
        return Outcome(
            records=records,
            cells=cells,
            path=self._folder,
            document=document(self._folder, records, cells),
            exit_code=worst_exit_code(self._codes),
            store_error=self._store_errors[0] if self._store_errors else None,
            notes=self._notes,
        )

    def _in_order(self) -> list[RunRecord]:
        order = {(case.spec_id, case.repeat): k for k, case in enumerate(self._cases)}
        return sorted(self._records, key=lambda r: order[r.spec_id, r.repeat])

    def _cells(self) -> list[Cell]:
        return combine(self._in_order())

    # ---- progress

    def _on_phase(self, m: Measured, phase: str) -> None:
        self._tell("phase", m.case, phase=phase, step=m.steps_done)

    def _on_round(self, m: Measured) -> None:
        found = median_interval([[r.wall_s / r.steps for r in m.rounds]], resamples=200)
        self._listener(
            Event(
                kind="round",
                case=m.case.label,
                cell=m.case.cell,
                done=len(self._records),
                total=len(self._cases),
                phase="measuring",
                step=m.steps_done,
                steps=m.case.spec.steps,
                median_s=found.value,
                ci_low_s=found.low,
                ci_high_s=found.high,
            )
        )

    def _tell(self, kind: str, case: Case | None = None, *, phase: str = "", step: int = 0, message: str = "") -> None:
        self._listener(
            Event(
                kind=kind,  # type: ignore[arg-type]
                case=case.label if case else "",
                cell=case.cell if case else None,
                done=len(self._records),
                total=len(self._cases),
                phase=phase,
                step=step,
                steps=case.spec.steps if case else 0,
                message=message,
            )
        )


def _ending(m: Measured, folder: Path | None) -> str:
    """Return how a case ended, with the path of the log that tells all of it; nothing if it is complete."""
    if not m.ended:
        return ""
    told = f"{m.status}: {m.reason}"
    if folder is None or m.failure is None or m.failure.detail not in m.logs:
        return told
    return f"{told} (log: {folder / m.failure.detail})"


def _placed(spec: RunSpec) -> tuple[str, str]:
    """Return where the ranks of `spec` compute and what connects them."""
    backend = linked(spec.backend, spec.network is not None)
    found = place(spec.device, backend, spec.world_size, Machine.here())
    return found.device, found.backend
