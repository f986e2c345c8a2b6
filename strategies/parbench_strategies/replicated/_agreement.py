"""Word is how rank 0 tells the others what to do next, through the process group's store: no collective is issued."""

from __future__ import annotations

import contextlib
import uuid
from typing import final

import torch
import torch.distributed as dist

from parbench.api import Comm, awaited


@final
class Word:
    """One rank's end of it; every rank calls `share` equally often.

    Args:
        group: the ranks that take part.
        comm: the same ranks.
        device: where their tensors are.

    Attributes:
        name: of what is said: no other engine of these ranks has it.
    """

    def __init__(self, group: dist.ProcessGroup, comm: Comm, device: torch.device) -> None:
        # A number that all ranks share and no other engine has: two variants may be alive together.
        drawn = torch.tensor(uuid.uuid4().int >> 66, device=device)
        self.name = f"replicated/{int(comm.broadcast(drawn))}"
        self._store = group.get_group_store()
        self._leads, self._world_size = comm.rank == 0, comm.world_size
        self._said = self._before = self._forgotten = 0

    def share(self, text: str) -> str:
        """Return what rank 0 says; only its `text` matters.

        Raises:
            TimeoutError: rank 0 said nothing for as long as a collective may take.
            RuntimeError: the store is gone.
        """
        key = f"{self.name}/{self._said}"
        self._said += 1
        if not self._leads:
            (said,) = awaited(self._store, [key])
            return said.decode()
        self._store.set(key, text)
        return text

    def forget(self) -> None:
        """Count a step, and remove what was said before the last one: every rank has gone on since, and has read it."""
        if self._leads:
            for key in range(self._forgotten, self._before):
                self._store.delete_key(f"{self.name}/{key}")
        self._forgotten, self._before = self._before, self._said

    def close(self) -> None:
        """Remove what was said from the store, once every rank has come here."""
        # The store may be gone already, with the launcher that served it.
        with contextlib.suppress(RuntimeError):
            if self._store.add(f"{self.name}/closed", 1) < self._world_size:
                return
            for key in ("closed", *range(self._forgotten, self._said)):
                self._store.delete_key(f"{self.name}/{key}")
