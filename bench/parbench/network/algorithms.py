"""Algorithms carry out the collectives that are measured: torch's own of the backend, and parbench's ring."""

from __future__ import annotations

import abc
from typing import ClassVar, final

import torch.distributed as dist
from torch import Tensor

from parbench.network.ring import Ring

# torch 2.13 renamed both; the old names warn there, the new ones do not exist in 2.11.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Algorithm(abc.ABC):
    """Collectives of one group; every one returns when its result is there."""

    ops: ClassVar[frozenset[str]]

    @abc.abstractmethod
    def run(self, op: str, given: Tensor, result: Tensor) -> None:
        """Carry out `op`; for all_reduce and broadcast `given` is `result`."""

    def close(self) -> None:
        """Release what it holds."""
        return None


@final
class Native(Algorithm):
    """What the backend of a process group does by itself.

    Args:
        group: the ranks that take part.
        rank: this one.
        ranks: how many.
    """

    ops = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv"})

    def __init__(self, group: dist.ProcessGroup, rank: int, ranks: int) -> None:
        self._group = group
        self._before = dist.get_global_rank(group, (rank - 1) % ranks)
        self._after = dist.get_global_rank(group, (rank + 1) % ranks)
        self._root = dist.get_global_rank(group, 0)

    def run(self, op: str, given: Tensor, result: Tensor) -> None:
        group = self._group
        match op:
            case "all_reduce":
                dist.all_reduce(result, group=group)
            case "reduce_scatter":
                _reduce_scatter(result, given, group=group)
            case "all_gather":
                _all_gather(result, given, group=group)
            case "broadcast":
                dist.broadcast(result, self._root, group=group)
            case "all_to_all":
                dist.all_to_all_single(result, given, group=group)
            case _:
                arriving = dist.irecv(result, self._before, group=group)
                leaving = dist.isend(given, self._after, group=group)
                for work in (leaving, arriving):
                    if work is not None:
                        work.wait()


@final
class OwnRing(Algorithm):
    """parbench's plain-socket ring, on CPU tensors."""

    ops = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast"})

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def run(self, op: str, given: Tensor, result: Tensor) -> None:
        match op:
            case "all_reduce":
                self._ring.all_reduce_async(result).wait()
            case "reduce_scatter":
                self._ring.reduce_scatter_async(result, given).wait()
            case "all_gather":
                self._ring.all_gather_async(result, given).wait()
            case _:
                self._ring.broadcast_async(result).wait()

    def close(self) -> None:
        self._ring.close()
