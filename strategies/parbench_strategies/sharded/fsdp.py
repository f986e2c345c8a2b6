"""FSDP (ZeRO-3): parameters, gradients and optimizer state are sharded; a block is gathered where it is needed."""

from __future__ import annotations

from typing import final

from parbench.api import Paper
from parbench_strategies.sharded._fully import FullySharded
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options


@final
class Fsdp(FullySharded):
    """Shards parameters, gradients and optimizer state block by block over all ranks, with torch's fully_shard.

    Args:
        reshard_after_forward: free a block's parameters after its forward and gather them again for its backward.
        min_parameters: blocks in a row are wrapped together until they hold so many elements; 0 wraps each.
        prefetch: wrapped blocks that are gathered ahead of the one that computes; 0 leaves it to torch.
        mixed_precision: cast parameters to the run's precision before they are gathered, which then moves fewer bytes,
            instead of computing under autocast; gradients are reduced in fp32.
        offload: keep parameters, gradients and optimizer state in host memory (GPUs only).
    """

    paper = Paper(
        "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel (Zhao et al., 2023)",
        "https://arxiv.org/abs/2304.11277",
    )

    def __init__(
        self,
        reshard_after_forward: bool = True,
        min_parameters: int = 0,
        prefetch: int = 0,
        mixed_precision: bool = False,
        offload: bool = False,
    ) -> None:
        super().__init__(
            Options(
                reshard_after_forward=reshard_after_forward,
                min_parameters=min_parameters,
                prefetch=prefetch,
                mixed_precision=mixed_precision,
                offload=offload,
            )
        )

    def grid(self, world_size: int) -> Grid:
        """One copy, cut over all ranks."""
        return Grid(replicas=1, shards=world_size)
