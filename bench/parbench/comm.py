"""Comm is the only door for collectives a strategy issues itself, on any backend; `counting` counts their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from parbench.annotations import annotated
from parbench.groups import Groups

# torch 2.13 renamed both; the old names warn there, the new ones do not exist in 2.11.
_all_gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_flat = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@final
@dataclass(frozen=True, slots=True)
class Handle:
    """An exchange in flight; `wait` returns once the tensor holds the result."""

    work: dist.Work | None
    tensor: Tensor
    divide_by: int = 1

    def wait(self) -> Tensor:
        """Block until the exchange is complete and return the tensor it filled."""
        if self.work is not None:
            with annotated("wait"):
                self.work.wait()
        if self.divide_by != 1:
            self.tensor.div_(self.divide_by)
        return self.tensor

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self.work is None or self.work.is_completed()


@final
class Comm:
    """Collectives over the ranks of one variant, or some of them.

    Attributes:
        rank: this rank, counted among those that take part.
        world_size: ranks taking part.
    """

    def __init__(
        self, group: dist.ProcessGroup | None, rank: int, world_size: int, groups: Groups | None = None
    ) -> None:
        self._group = group
        self._groups = groups
        self.rank = rank
        self.world_size = world_size

    def subset(self, ranks: Sequence[int], copy: int = 0) -> Comm:
        """Return the collectives over some of these ranks; only they call this, and all of them in one order.

        Args:
            ranks: ascending, this rank among them.
            copy: several groups of the same ranks exchange side by side; each has a number.

        Raises:
            ValueError: this rank is not among them.
        """
        if self.rank not in ranks:
            raise ValueError(f"rank {self.rank} asks for a group of ranks {list(ranks)}, which it is not in")
        mine = list(ranks).index(self.rank)
        if self._group is None or self._groups is None or len(ranks) == 1:
            return Comm(None, mine, len(ranks), self._groups)
        everyone = [dist.get_global_rank(self._group, rank) for rank in ranks]
        return Comm(self._groups.of(everyone, copy), mine, len(ranks), self._groups)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group behind it, for torch's own wrappers; None where the variant has one rank."""
        return self._group

    @property
    def groups(self) -> Groups | None:
        """All groups of this rank; None where the variant has no other rank."""
        return self._groups

    def sum_async(self, tensor: Tensor) -> Handle:
        """Start adding `tensor` over all ranks in place (any shape and dtype)."""
        return Handle(self._all_reduce(tensor), tensor)

    def mean_async(self, tensor: Tensor) -> Handle:
        """Start averaging `tensor` over all ranks in place; the division follows the sum, on every backend alike."""
        return Handle(self._all_reduce(tensor), tensor, self.world_size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Add `tensor` over all ranks in place and return it."""
        return self.sum_async(tensor).wait()

    def mean(self, tensor: Tensor) -> Tensor:
        """Average `tensor` over all ranks in place and return it."""
        return self.mean_async(tensor).wait()

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Give every rank the `tensor` of rank `source` (a rank of this variant), in place, and return it."""
        if self._group is not None:
            dist.broadcast(tensor, dist.get_global_rank(self._group, source), group=self._group)
        return tensor

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every rank's `tensor` (equal shapes) in rank order."""
        if self._group is None:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor, group=self._group)
        return parts

    def all_gather_flat(self, whole: Tensor, shard: Tensor) -> Tensor:
        """Fill `whole` (n x shard elements, flat) with every rank's `shard` in rank order, and return it."""
        return self.all_gather_flat_async(whole, shard).wait()

    def all_gather_flat_async(self, whole: Tensor, shard: Tensor) -> Handle:
        """Start filling `whole` (n x shard elements, flat) with every rank's `shard` in rank order."""
        if self._group is None:
            return Handle(None, whole.copy_(shard))
        work: dist.Work = _all_gather_flat(whole, shard, group=self._group, async_op=True)
        return Handle(work, whole)

    def reduce_scatter_async(self, shard: Tensor, whole: Tensor) -> Handle:
        """Start averaging `whole` (flat, n x shard elements) over all ranks; each rank gets its part in `shard`.

        gloo moves all-reduce's bytes here, twice what the ideal algorithm sends.
        """
        if self._group is None:
            return Handle(None, shard.copy_(whole))
        work: dist.Work = _reduce_scatter_flat(shard, whole, group=self._group, async_op=True)
        return Handle(work, shard, self.world_size)

    def send_async(self, tensor: Tensor, target: int) -> Handle:
        """Start sending `tensor` (contiguous; not to be changed before `wait`) to rank `target` of these ranks."""
        work: dist.Work | None = None
        if self._group is not None and tensor.numel():
            work = dist.isend(tensor, dist.get_global_rank(self._group, target), group=self._group)
        return Handle(work, tensor)

    def receive_async(self, tensor: Tensor, source: int) -> Handle:
        """Start filling `tensor` with what rank `source` of these ranks sends; messages of a pair arrive in order."""
        work: dist.Work | None = None
        if self._group is not None and tensor.numel():
            work = dist.irecv(tensor, dist.get_global_rank(self._group, source), group=self._group)
        return Handle(work, tensor)

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> tuple[list[Handle], list[Handle]]:
        """Start messages to and from ranks that send at the same time; return the handles of `receives`, of `sends`.

        Args:
            sends: tensors (contiguous; not to be changed before `wait`) and their targets.
            receives: tensors to fill and their sources; messages of a pair arrive in order.
        """
        if self._group is None or dist.get_backend(self._group) != "nccl":
            received = [self.receive_async(tensor, source) for tensor, source in receives]
            return received, [self.send_async(tensor, target) for tensor, target in sends]
        # NCCL runs one after the other what is not grouped: two ranks that send to each other would wait for ever.
        operations = [
            dist.P2POp(operation, tensor, dist.get_global_rank(self._group, peer), self._group)
            for operation, messages in ((dist.irecv, receives), (dist.isend, sends))
            for tensor, peer in messages
            if tensor.numel()
        ]
        # The group has one piece of work: whoever waits for it waits for all.
        work = dist.batch_isend_irecv(operations)[-1] if operations else None
        return [Handle(work, tensor) for tensor, _ in receives], [Handle(work, tensor) for tensor, _ in sends]

    def gather(self, tensor: Tensor, root: int = 0) -> list[Tensor]:
        """Return every rank's `tensor` (equal shapes) in rank order on rank `root`; nothing on the others."""
        if self._group is None:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)] if self.rank == root else None
        dist.gather(tensor, parts, dist.get_global_rank(self._group, root), group=self._group)
        return parts or []

    def barrier(self) -> None:
        """Return once every rank has come here."""
        if self._group is not None:
            dist.barrier(group=self._group)

    def _all_reduce(self, tensor: Tensor) -> dist.Work | None:
        if self._group is None:
            return None
        work: dist.Work = dist.all_reduce(tensor, group=self._group, async_op=True)
        return work
