"""A sweep measures every cell of a suite, whatever happens to some of them, and stores each case as it ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from parbench import requirements
from parbench.campaign import Campaign, Outcome
from parbench.errors import ParbenchError, StoreError, UsageError
from parbench.events import Listener, silent
from parbench.faults import parse_fault
from parbench.launch.elastic import TorchrunSeat
from parbench.launch.failure import Stopped
from parbench.launch.forkserver import begin_forkserver, give_up_forkserver
from parbench.launch.place import Machine, place
from parbench.launch.stopping import StopRequest
from parbench.max_batch import largest_batch
from parbench.memory_launch import alone_in
from parbench.network.admission import admitted, linked
from parbench.network.survey import survey
from parbench.record import Chosen, RunRecord
from parbench.registry import Registry
from parbench.requirements import NO_DEMANDS, Demands
from parbench.resolve import resolve
from parbench.spec import RunSpec, spec_id
from parbench.store import Store
from parbench.suite import Suite, load, of_specs

# What a rank takes beyond the pages it shares with the forkserver, before it holds a model.
_RANK_BYTES = 60 * 2**20


def run(
    what: RunSpec | Sequence[RunSpec] | Suite | str | Path,
    *,
    out: str | Path = "results",
    plugins: Sequence[str | Path] = (),
    fresh: bool = False,
    listener: Listener = silent,
) -> list[RunRecord]:
    """Measure and store; the Python way of `parbench run`.

    Args:
        what: one cell, several, a suite, or the path of a suite file.
        out: folder of results.
        plugins: files whose strategies and workloads may be named.
        fresh: measure everything anew, even after a sweep that was cut short.
        listener: told about progress.

    Returns:
        One record per case; look at `status` before `metrics`. A case that fails is a record, not an exception.

    Raises:
        UsageError: something asked for cannot be meant.
        MissingError: torch, a GPU or a backend is not there.
        StoreError: results could not be stored.
    """
    if isinstance(what, str | Path):
        suite = load(Path(what))
    elif isinstance(what, Suite):
        suite = what
    else:
        suite = of_specs((what,) if isinstance(what, RunSpec) else tuple(what))
    registry = Registry([Path(p) for p in plugins])
    outcome = run_sweep(suite, out=Path(out), registry=registry, fresh=fresh, listener=listener)
    if outcome.store_error is not None:
        raise StoreError(outcome.store_error)
    return outcome.records


def run_sweep(
    suite: Suite,
    *,
    out: Path,
    registry: Registry,
    fresh: bool = False,
    listener: Listener = silent,
    demands: Demands = NO_DEMANDS,
) -> Outcome:
    """Measure every cell of `suite`; failures become records and the sweep goes on.

    Args:
        suite: what to measure.
        out: folder of results; `out/<suite>/<run id>/` holds a run.
        registry: where names are looked up.
        fresh: do not take up a sweep that was cut short.
        listener: told about progress.
        demands: what must be there, and be found, before anything is measured.

    Raises:
        UsageError: something asked for cannot be meant; nothing was started.
        MissingError: something asked for is not there; nothing was started.
        StoreError: the folder cannot be written; nothing was started.
    """
    parse_fault(os.environ.get("PARBENCH_FAULT", ""))
    registry.check_names(suite.specs)
    seat = TorchrunSeat.here(os.environ)
    if seat is not None:
        return _under_torchrun(seat, suite, out, registry, listener, demands)
    with StopRequest() as stop:
        begin_forkserver()
        try:
            suite, machine = _settled(suite, registry)
            requirements.check(demands, _devices(suite, machine))
            Store(out).probe()
            links = survey(suite.specs, stop)
            suite, batches = (
                _with_largest_batches(suite, registry, stop, machine) if demands.find_max_batch else (suite, {})
            )
        except (ParbenchError, Stopped):
            give_up_forkserver()
            raise
        return Campaign(suite, out, registry, listener, stop, None, links, batches).run(fresh=fresh)


def _settled(suite: Suite, registry: Registry) -> tuple[Suite, Machine]:
    """Return the suite as it will run and the machine it will run on; raises where that cannot be."""
    suite = resolve(suite, registry)
    largest = max((spec.world_size for spec in suite.specs), default=0)
    _check_memory(largest)
    fault = parse_fault(os.environ.get("PARBENCH_FAULT", ""))
    if fault is not None and fault.rank >= largest:
        raise UsageError(f"PARBENCH_FAULT names rank {fault.rank}, but no case has more than {largest} ranks; mend it")
    machine = Machine.here()
    for spec in suite.specs:
        shaped = admitted(spec.network, spec.world_size, spec.backend)
        place(spec.device, linked(spec.backend, shaped is not None), spec.world_size, machine)
    return suite, machine


def _with_largest_batches(
    suite: Suite, registry: Registry, stop: StopRequest, machine: Machine
) -> tuple[Suite, dict[str, Chosen]]:
    """Return the suite with the largest batch that fits in every cell, and per cell how that is known."""
    for spec in suite.specs:
        on_cpu = place(spec.device, spec.backend, spec.world_size, machine).device == "cpu"
        if on_cpu and spec.memory_gib is None:
            raise UsageError(
                "--find-max-batch on a CPU needs --memory-gib X, the most a rank may take: without it the search would "
                "end when the kernel kills something"
            )
    specs: dict[RunSpec, Chosen] = {}
    for spec in suite.specs:
        found = largest_batch(alone_in(registry, stop, weigh=False), spec)
        batch = found.batch or spec.global_batch_size
        because = f"the largest that fits: {found.because}" if found.batch else f"none fits: {found.because}"
        specs[msgspec.structs.replace(spec, global_batch_size=batch)] = Chosen(value=str(batch), because=because)
    suite = msgspec.structs.replace(suite, specs=tuple(specs))
    return suite, {spec_id(spec): chosen for spec, chosen in specs.items()}


def _devices(suite: Suite, machine: Machine) -> list[str]:
    return [place(spec.device, spec.backend, spec.world_size, machine).device for spec in suite.specs]


def _check_memory(world_size: int) -> None:
    """Refuse more ranks than this host can hold, before it is asked to.

    Raises:
        UsageError: their interpreters alone would take more memory than is free.
    """
    free = psutil.virtual_memory().available
    if TorchrunSeat.here(os.environ) is None and world_size * _RANK_BYTES > free:
        most = free // _RANK_BYTES
        raise UsageError(f"{world_size} ranks take more memory than is free here; at most {most} fit: use fewer (-n)")


def _under_torchrun(
    seat: TorchrunSeat, suite: Suite, out: Path, registry: Registry, listener: Listener, demands: Demands
) -> Outcome:
    """Lead the sweep in rank 0, serve in the others; every process of a torchrun launch comes here."""
    from parbench.launch.torchrun import TorchrunRanks  # torch

    suite, machine = _settled(suite, registry)
    seat.check(suite.specs)
    requirements.check(demands, _devices(suite, machine))
    if demands.find_max_batch:
        raise UsageError("--find-max-batch needs fresh ranks for every trial; torchrun starts them once: leave one out")
    if networks := [spec.network for spec in suite.specs if spec.network is not None]:
        raise UsageError(
            f"--network {networks[0]} shapes links between ranks that parbench starts itself; torchrun started these: "
            "leave it out, or start without torchrun"
        )
    if seat.rank == 0:
        Store(out).probe()
    spec = max(suite.specs, key=lambda one: one.world_size)
    stop = StopRequest()
    # Signals keep their default meaning while joining and in ranks that serve: torchrun must be able to end them.
    ranks = TorchrunRanks.start(
        seat,
        place(spec.device, spec.backend, seat.world_size, machine),
        threads=spec.threads,
        timeout_s=spec.timeout_s,
        stop=stop,
        plugins=registry.plugins,
        fault=os.environ.get("PARBENCH_FAULT", ""),
    )
    if seat.rank != 0:
        code = ranks.serve()
        return Outcome(records=[], cells=[], path=out, document=b"", exit_code=code, leads=False)
    with stop:
        outcome = Campaign(suite, out, registry, listener, stop, ranks).run(fresh=True)
        ranks.end()
    return outcome
