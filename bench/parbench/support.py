"""Support says which collectives a process group carries out for tensors of a device: each is tried once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from parbench.api import Comm, Job, RankContext, Strategy


def _send(comm: Comm, tensor: Tensor) -> None:
    right, left = (comm.rank + 1) % comm.world_size, (comm.rank - 1) % comm.world_size
    received, sent = comm.exchange([(tensor, right)], [(torch.empty_like(tensor), left)])
    for handle in (*received, *sent):
        handle.wait()


_TRIALS: Mapping[str, Callable[[Comm, Tensor], object]] = {
    "all_reduce": lambda comm, x: comm.sum(x),
    "broadcast": lambda comm, x: comm.broadcast(x),
    "all_gather": lambda comm, x: comm.all_gather_flat(x.new_empty(x.numel() * comm.world_size), x),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter_async(x, x.new_empty(x.numel() * comm.world_size)).wait(),
    "gather": lambda comm, x: comm.gather(x),
    "send": _send,
}


@final
class Support:
    """Remembers what was tried; every rank of a group asks in the same order."""

    def __init__(self) -> None:
        self._tried: dict[tuple[str, str], str | None] = {}

    def missing(self, strategy: Strategy, job: Job, ctx: RankContext) -> str | None:
        """Return a sentence naming a collective that `strategy` needs and that is not there, or None.

        The answer is the same on all ranks: what any of them needs counts. Tensors on a CPU are not tried, gloo takes
        them all.
        """
        if ctx.comm.group is None or ctx.device.type == "cpu":
            return None
        backend = str(dist.get_backend(ctx.comm.group))
        closed = (strategy.traffic(job, replace(ctx, rank=rank)) or {} for rank in range(ctx.world_size))
        needed = sorted({op for one in closed for op in one})
        for op in needed:
            if (backend, op) not in self._tried:
                self._tried[backend, op] = problem(op, ctx.comm, ctx.device)
            if (why := self._tried[backend, op]) is not None:
                return (
                    f"{backend} does no {op} of tensors on {ctx.device.type} ({why}); use another --backend or --device"
                )
        return None


def problem(op: str, comm: Comm, device: torch.device) -> str | None:
    """Try a collective and return what was said where it failed, or None; one that is not known is not tried.

    What a backend cannot do for a device it refuses on every rank before anything is sent.
    """
    try:
        if (trial := _TRIALS.get(op)) is not None:
            trial(comm, torch.ones(4, device=device))
    except (RuntimeError, ValueError) as error:
        return str(error).partition("\n")[0][:120]
    return None
