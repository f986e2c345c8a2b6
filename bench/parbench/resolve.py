"""Resolving a suite fills in what its strategies and workloads decide: ranks, batch size, the hash of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parbench import fields
from parbench.errors import UsageError, unknown_name
from parbench.network.spelling import parse_network
from parbench.registry import Registry
from parbench.slowing import speeds_text, straggler_text
from parbench.spec import RunSpec
from parbench.suite import Suite

if TYPE_CHECKING:
    from parbench.api import Job, Workload


def resolve(suite: Suite, registry: Registry, *, refuse: bool = True) -> Suite:
    """Return `suite` as it will run; resolving twice changes nothing.

    A strategy that always uses one number of ranks gets it, the batch size is filled in from the workload, the hash of
    its data is added, and cells that turn out to be the same are kept once. A cell that can never run (a number of
    ranks that its strategy cannot use) is said in the notes; where no cell can, the suite is refused.

    Args:
        suite: what to resolve.
        registry: knows the plug-ins.
        refuse: whether to ask which cells can ever run, and to refuse a suite of which none can; reading back what
            was resolved once need not build every model again.

    Raises:
        UsageError: a name, an argument or a size is unknown, or no cell can ever run.
        MissingError: torch is missing.
    """
    resolver = _Resolver(registry, refuse)
    specs: dict[bytes, RunSpec] = {}
    for spec in suite.specs:
        resolved = resolver.one(fields.validated(spec))
        specs.setdefault(resolver.identity(resolved), resolved)
    if resolver.refused and len(resolver.refused) == len(suite.specs):
        raise UsageError("\n".join(dict.fromkeys(resolver.refused)))
    resolver.notes += resolver.refused
    return msgspec.structs.replace(
        suite, specs=tuple(specs.values()), notes=tuple(dict.fromkeys((*suite.notes, *resolver.notes)))
    )


class _Resolver:
    """Resolves specs one by one; builds each workload once, because hashing its data may take time."""

    def __init__(self, registry: Registry, refuse: bool) -> None:
        self._refuse = refuse
        self.notes: list[str] = []
        self.refused: list[str] = []
        self._registry = registry
        self._workloads: dict[str, Workload] = {}
        self._hashes: dict[str, str | None] = {}
        self._jobs: dict[tuple[str, str, int | None], Job] = {}

    def one(self, spec: RunSpec) -> RunSpec:
        spec = self._with_ranks(spec)
        if spec.network is not None:
            network = parse_network(spec.network)
            spec = msgspec.structs.replace(spec, network=network.text if network else None)
        spec = self._slowed(spec)
        for probe in spec.probes:
            self._registry.resolve("probe", probe)
        workload = self._workload(spec.workload)
        if spec.size not in workload.sizes:
            raise unknown_name(f"size of {spec.workload}", spec.size, workload.sizes, "parbench list workloads")
        batch = spec.global_batch_size or workload.default_batch_size(spec.size)
        if batch < spec.world_size:
            self.notes.append(
                f"{spec.strategy} at {spec.world_size} ranks has a global batch of {batch} samples: some ranks get none"
            )
        found = self._hashes[spec.workload]
        if spec.data_hash not in (None, found):
            self.notes.append(
                f"the data of {spec.workload} is not what the record was measured on "
                f"({spec.data_hash} then, {found} now): losses are not comparable"
            )
        resolved = msgspec.structs.replace(spec, global_batch_size=batch, data_hash=found)
        if self._refuse:
            self._note_impossible(resolved, workload)
        return resolved

    def _slowed(self, spec: RunSpec) -> RunSpec:
        speeds = None if spec.rank_speed is None else speeds_text(spec.rank_speed, spec.world_size)
        straggler = None if spec.straggler is None else straggler_text(spec.straggler)
        return msgspec.structs.replace(spec, rank_speed=speeds, straggler=straggler)

    def _note_impossible(self, spec: RunSpec, workload: Workload) -> None:
        strategy = self._registry.resolve("strategy", spec.strategy)
        if workload.unsupported() is not None:
            return
        why = strategy.impossible(self._job(spec, workload), spec.world_size)
        if why is not None:
            self.refused.append(f"{spec.strategy} on {spec.workload}/{spec.size} at {spec.world_size} ranks: {why}")

    def _job(self, spec: RunSpec, workload: Workload) -> Job:
        """Return the job of `spec` without values; every strategy is asked about the same one."""
        import torch

        key = (spec.workload, spec.size, spec.global_batch_size)
        if key not in self._jobs:
            batch = spec.global_batch_size or workload.default_batch_size(spec.size)
            self._jobs[key] = workload.build(spec.size, spec.seed, torch.device("meta"), batch)
        return self._jobs[key]

    def identity(self, spec: RunSpec) -> bytes:
        """Return what two spellings of one cell share."""
        strategy = self._registry.canonical("strategy", spec.strategy)
        workload = self._registry.canonical("workload", spec.workload)
        return msgspec.json.encode(msgspec.structs.replace(spec, strategy=strategy, workload=workload))

    def _with_ranks(self, spec: RunSpec) -> RunSpec:
        ranks = self._registry.resolve("strategy", spec.strategy).ranks
        if ranks is None or ranks == spec.world_size:
            return spec
        word = "rank" if ranks == 1 else "ranks"
        self.notes.append(f"{spec.strategy} always runs on {ranks} {word}, whatever is asked for")
        return msgspec.structs.replace(spec, world_size=ranks)

    def _workload(self, written: str) -> Workload:
        if written not in self._workloads:
            workload = self._registry.resolve("workload", written)
            self._workloads[written] = workload
            self._hashes[written] = self._hash(written, workload)
        return self._workloads[written]

    def _hash(self, written: str, workload: Workload) -> str | None:
        # A workload that cannot be built here has no data to hash; the engine records why.
        if workload.unsupported() is not None:
            return None
        try:
            return workload.data_hash()
        except (OSError, ValueError) as error:
            raise UsageError(f"the data of {written} cannot be read: {error}; check the path") from error
