"""Round robin: bucket b is all-reduced in copy b mod k of the process group, so that k exchanges go on side by side.

This module does without postponed annotations: torch compares those of a hook with the types themselves.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket


def round_robin(groups: Sequence[dist.ProcessGroup], bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Start averaging one bucket; a communication hook of DistributedDataParallel, called in the order of buckets.

    Args:
        groups: copies of one group.
        bucket: flat gradients.

    Returns:
        A future of the mean. Nothing but the result is taken from what is then complete: collectives issued there
        would come in another order on every rank.
    """
    group = groups[bucket.index() % len(groups)]
    work = dist.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
    mean: torch.futures.Future[Tensor] = work.get_future().then(_reduced)
    return mean


def _reduced(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    return done.value()[0]
