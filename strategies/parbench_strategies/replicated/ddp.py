"""DistributedDataParallel: buckets of gradients are all-reduced while backward goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduce_bytes,
    backward,
    bytes_of,
    data_parallel,
    replicated_memory,
)


@final
class Ddp(Strategy):
    """All-reduces buckets of gradients while backward goes on, with torch's DistributedDataParallel.

    Args:
        bucket_cap_mb: size of a bucket in MiB.
    """

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    agrees = "closely"

    def __init__(self, bucket_cap_mb: float = 25.0) -> None:
        if not 0 < bucket_cap_mb < 1e6:
            raise ValueError(f"bucket_cap_mb must be above 0 and below 1e6, got {bucket_cap_mb}")
        self.bucket_cap_mb = bucket_cap_mb

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Every bucket is all-reduced once, unused parameters included; rank 0 broadcasts the buffers."""
        sent = {"all_reduce": all_reduce_bytes(job, ctx)}
        buffers = bytes_of(job.model.buffers())
        return sent | ({"broadcast": Fraction(buffers)} if buffers and ctx.rank == 0 else {})

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything, and its buckets hold the gradients a second time."""
        whole = replicated_memory(job)
        return replace(whole, gradients=whole.gradients * 2)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Wrap the model; one rank has nobody to exchange with and trains bare."""
        return _DdpTrainer(job, ctx, self.bucket_cap_mb)


@final
class _DdpTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, bucket_cap_mb: float) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        ids = [ctx.device.index or 0] if ctx.device.type == "cuda" else None
        self._ddp: DistributedDataParallel | None = DistributedDataParallel(
            job.model,
            device_ids=ids,
            process_group=ctx.comm.group,
            bucket_cap_mb=bucket_cap_mb,
            find_unused_parameters=bool(job.unused),
        )

    def step(self, batch: Batch) -> Tensor:
        ddp = self._ddp
        if ddp is None:
            raise RuntimeError("step after close")
        self.zero_grad()
        loss = backward(self.job, self.ctx, ddp, batch, hold=ddp.no_sync)
        self.update()
        return loss

    def close(self) -> None:
        # A wrapper alive when its process group is destroyed can hang the rank.
        self._ddp = None
