"""A RankContext is who a rank is: everything a strategy may know of where it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import final

import torch

from parbench.comm import Comm
from parbench.job import Batch


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """Who this rank is; nothing below it reads the process environment.

    Attributes:
        rank: 0 to world_size - 1.
        local_rank: the same, counted on this host.
        world_size: ranks that hold this variant.
        device: where this rank computes.
        dtype: arithmetic of forward and backward under autocast.
        comm: the door for collectives a strategy issues itself.
        accumulate: micro-batches a rank cuts its share into.
        generator: random numbers for the strategy, seeded per run, equal on all ranks.
        speeds: how fast each rank computes, relative to what it can, where that is known (`--rank-speed`); else empty.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    dtype: torch.dtype
    comm: Comm
    accumulate: int
    generator: torch.Generator
    speeds: tuple[float, ...] = ()

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which forward runs: autocast to `dtype`, or nothing for fp32."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def share(self, batch: Batch) -> Batch:
        """Return this rank's part of a global batch, on this rank's device."""
        return batch.share(self.rank, self.world_size).to(self.device)
