"""Options are what fully sharded strategies can be told besides how many copies of the model there are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from parbench.api import Job, RankContext

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What fsdp and hsdp can be told; see their arguments.

    Attributes:
        reshard_after_forward: free a unit after its forward and gather it again for its backward.
        min_parameters: elements that a unit holds at least.
        prefetch: units gathered ahead; 0 leaves it to torch.
        mixed_precision: cast parameters before they are gathered.
        offload: keep shards in host memory.
    """

    reshard_after_forward: bool
    min_parameters: int
    prefetch: int
    mixed_precision: bool
    offload: bool

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            ValueError: one is negative.
        """
        for name, value in (("min_parameters", self.min_parameters), ("prefetch", self.prefetch)):
            if value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")

    def unsupported(self, job: Job, ctx: RankContext, shards: int) -> str | None:
        """Return a sentence saying why they cannot be had here, or None."""
        if self.mixed_precision and ctx.dtype is torch.float32:
            return (
                "mixed_precision gathers parameters in the precision of the run, which is fp32 here; "
                "add --precision bf16 or leave mixed_precision out"
            )
        if self.mixed_precision and any(isinstance(module, _BATCH_NORMS) for module in job.model.modules()):
            return (
                "mixed_precision casts the weights of batch norms but not their running statistics, and torch does not "
                "take both together; leave mixed_precision out, autocast knows what to do"
            )
        if self.offload and ctx.device.type != "cuda":
            return (
                f"offload keeps shards in host memory while a GPU computes, and ranks compute on {ctx.device.type} "
                "here; use --device cuda or leave offload out"
            )
        asked = [name for name in ("mixed_precision", "offload") if getattr(self, name)]
        if asked and shards == 1:
            return (
                f"{' and '.join(asked)} cannot be had without shards, and here a rank holds the whole model; "
                "shard it over 2 ranks or more, or leave the option out"
            )
        return None
