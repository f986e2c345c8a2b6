"""A Builder makes the jobs of one rank: plain, with the axes of a spec put on, or as shapes only."""

from __future__ import annotations

from typing import final

import msgspec
import torch

from parbench import axes
from parbench.api import Job, Workload
from parbench.compiling import Compilations
from parbench.spec import RunSpec


@final
class Builder:
    """Builds jobs on one device and knows how long was spent compiling them.

    Args:
        device: where the models live.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._compilations: Compilations | None = None

    def plain(self, workload: Workload, spec: RunSpec) -> Job:
        """Build the job as the workload has it."""
        return self._build(workload, spec, self._device)

    def full(self, workload: Workload, spec: RunSpec) -> Job:
        """Build the job with all axes of `spec` put on."""
        if spec.compile and self._compilations is None:
            self._compilations = Compilations()
        return axes.applied(self.plain(workload, spec), spec)

    def reference(self, workload: Workload, spec: RunSpec) -> Job:
        """Build the job that one process trains: in the same precision, nothing recomputed, nothing compiled."""
        return axes.applied(self.plain(workload, spec), msgspec.structs.replace(spec, recompute="none", compile=False))

    def shapes(self, workload: Workload, spec: RunSpec) -> Job:
        """Build the job without values, as `full` but not compiled."""
        job = self._build(workload, spec, torch.device("meta"))
        return axes.applied(job, msgspec.structs.replace(spec, compile=False))

    @property
    def compiled_s(self) -> float:
        """Seconds spent compiling so far."""
        return self._compilations.total_s if self._compilations is not None else 0.0

    def _build(self, workload: Workload, spec: RunSpec, device: torch.device) -> Job:
        batch_size = spec.global_batch_size or workload.default_batch_size(spec.size)
        torch.manual_seed(spec.seed)  # a forked process inherits its parent's random state
        return workload.build(spec.size, spec.seed, device, batch_size)
