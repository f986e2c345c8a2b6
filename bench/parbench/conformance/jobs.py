"""Jobs of one workload under examination, each built once, and how two of them are compared."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import numpy as np
import torch
from torch import Tensor

from parbench.api import Batch, Job, Workload


@final
class Jobs:
    """Jobs of one workload, built when they are first looked at; a law that changes a job builds its own."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._kept: dict[tuple[str, str], Job] = {}

    def new(self, seed: int = 3) -> Job:
        """Build a job of size smoke."""
        return self._build("smoke", seed, "cpu")

    @property
    def smoke(self) -> Job:
        """A job of size smoke, to look at."""
        return self._one("smoke", "cpu")

    def shapes(self) -> Iterator[tuple[str, Job]]:
        """Yield every size and its job on the meta device, to look at."""
        return ((size, self._one(size, "meta")) for size in self.workload.sizes)

    def _one(self, size: str, device: str) -> Job:
        if (size, device) not in self._kept:
            self._kept[size, device] = self._build(size, 3, device)
        return self._kept[size, device]

    def _build(self, size: str, seed: int, device: str) -> Job:
        return self.workload.build(size, seed, torch.device(device), self.workload.default_batch_size(size))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as ranks do: models of size smoke are far too small for more, and wait for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def guarded(check: Callable[[Jobs], str | None], jobs: Jobs) -> str | None:
    """Return what is wrong by `check`; what it raises is."""
    try:
        return check(jobs)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything, and breaks only this law
        return f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"


def random_states() -> dict[str, object]:
    """Return the global random states, comparable."""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "random": random.getstate(),
        "numpy": repr(np.random.get_state(legacy=True)),
    }


def digest(job: Job) -> str:
    """Return the hash of all weights."""
    found = hashlib.sha256()
    for _, p in job.model.named_parameters():
        found.update(p.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def equal(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same bits."""

    def same(x: Tensor, y: Tensor) -> bool:
        return x.dtype == y.dtype and torch.equal(x, y)

    return same(a.inputs, b.inputs) and same(a.targets, b.targets)
