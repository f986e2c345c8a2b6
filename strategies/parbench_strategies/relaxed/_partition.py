"""A Partition says which samples a rank sees.

shares    epoch 0: A B | epoch 1: C D      drawn anew in every epoch, as for all strategies
chunks    epoch 0: A B | epoch 1: A B      a rank sees its own half of the data for ever (DefDP)
rotated   epoch 0: A B | epoch 1: B A      every rank sees all of the data, each in another order (SelDP)
labels    the batch sorted by label        a rank sees some classes only: data that are not identically distributed

DefDP and SelDP are those of Tyagi and Swany (2023), https://arxiv.org/abs/2307.07950.
"""

from __future__ import annotations

from typing import Literal

import torch

from parbench.api import Batch, Job

Partition = Literal["shares", "chunks", "rotated", "labels"]


def refusal(partition: Partition, job: Job) -> str | None:
    """Return a sentence saying why the data of `job` cannot be partitioned so, or None."""
    if partition in ("chunks", "rotated") and job.steps_per_epoch is None:
        return f"partition={partition} needs data with epochs, and this workload says of none; leave partition out"
    if partition == "labels":
        targets = job.batch(0).targets
        if targets.dim() != 1 or targets.is_floating_point():
            return "partition=labels needs one class per sample, and this workload's targets are others; leave it out"
    return None


def portion(partition: Partition, job: Job, step: int, batch: Batch, rank: int, world_size: int) -> Batch:
    """Return what a rank sees in a step; what all ranks see together has as many samples as the batch.

    Args:
        partition: which samples a rank sees.
        job: whose batches they are.
        step: steps taken before this one.
        batch: the workload's own for this step.
        rank: which rank.
        world_size: ranks that share it.
    """
    if partition == "labels":
        order_B = torch.argsort(batch.targets, stable=True)
        order_S = order_B[rank * len(order_B) // world_size : (rank + 1) * len(order_B) // world_size]
        return Batch(inputs=batch.inputs[order_S], targets=batch.targets[order_S])
    if partition == "shares" or job.steps_per_epoch is None:
        return batch.share(rank, world_size)
    epoch, index = divmod(step, job.steps_per_epoch)
    turn = epoch if partition == "rotated" else 0
    return job.batch(index).share((rank + turn) % world_size, world_size)
