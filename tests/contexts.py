"""Who a rank is, for what is asked of a strategy without any rank: closed forms, refusals."""

import torch

from parbench.api import Comm, RankContext


def context(world_size, rank=0, dtype=torch.float32, accumulate=1):
    """Return rank `rank` of `world_size` on the CPU, in no group."""
    return RankContext(
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        device=torch.device("cpu"),
        dtype=dtype,
        comm=Comm(None, rank, world_size),
        accumulate=accumulate,
        generator=torch.Generator(),
    )
