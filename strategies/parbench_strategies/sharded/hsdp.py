"""HSDP (hybrid sharding): groups of ranks shard a copy of the model each, and the copies average their gradients.

    replicas 2, world size 4      rank 0: shard 0 | rank 1: shard 1
                                  rank 2: shard 0 | rank 3: shard 1

Gathers and reduce-scatters go along rows, all-reduces of what is left of the gradients along columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from parbench.api import Job, Paper
from parbench_strategies.sharded._fully import FullySharded
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options


@final
class Hsdp(FullySharded):
    """Shards the model inside groups of ranks and replicates it across them, so that gathers stay inside a group.

    With as many replicas as ranks each rank holds a whole copy, and trains as under DistributedDataParallel.

    Args:
        replicas: copies of the model; each is sharded over world size / replicas ranks.
        reshard_after_forward: free a block's parameters after its forward and gather them again for its backward.
        min_parameters: blocks in a row are wrapped together until they hold so many elements; 0 wraps each.
        prefetch: wrapped blocks that are gathered ahead of the one that computes; 0 leaves it to torch.
        mixed_precision: cast parameters to the run's precision before they are gathered, which then moves fewer bytes,
            instead of computing under autocast; gradients are reduced in fp32.
        offload: keep parameters, gradients and optimizer state in host memory (GPUs only).
    """

    paper = Paper(
        "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel (Zhao et al., 2023), hybrid sharding",
        "https://arxiv.org/abs/2304.11277",
    )

    def __init__(
        self,
        replicas: int = 2,
        reshard_after_forward: bool = True,
        min_parameters: int = 0,
        prefetch: int = 0,
        mixed_precision: bool = False,
        offload: bool = False,
    ) -> None:
        if replicas < 1:
            raise ValueError(f"replicas must be 1 or more, got {replicas}")
        super().__init__(
            Options(
                reshard_after_forward=reshard_after_forward,
                min_parameters=min_parameters,
                prefetch=prefetch,
                mixed_precision=mixed_precision,
                offload=offload,
            )
        )
        self.replicas = replicas

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Refuse copies that cannot be sharded over equally many ranks."""
        if world_size % self.replicas == 0:
            return None
        divisors = [k for k in range(1, world_size + 1) if world_size % k == 0]
        nearest = sorted(sorted(divisors, key=lambda k: abs(k - self.replicas))[:3])
        return (
            f"replicas x shards = world size, and {self.replicas} x shards = {world_size} has no whole solution; "
            f"replicas nearest to it that have one: {', '.join(map(str, nearest))}"
        )

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """Copies, and the ranks that share one."""
        return {"replicate": self.replicas, "shard": world_size // self.replicas}

    def grid(self, world_size: int) -> Grid:
        """So many copies, each cut over its part of the ranks."""
        return Grid(replicas=self.replicas, shards=world_size // self.replicas)
