"""FSDP (ZeRO-3): parameters, gradients and optimizer state are sharded; a block is gathered where it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import final

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward


@final
class Fsdp(Strategy):
    """Shards parameters, gradients and optimizer state block by block, with torch's fully_shard.

    Args:
        reshard_after_forward: free a block's parameters after its forward and gather them again for its backward.
    """

    paper = Paper(
        "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel (Zhao et al., 2023)",
        "https://arxiv.org/abs/2304.11277",
    )
    agrees = "closely"
    consumes_model = True

    def __init__(self, reshard_after_forward: bool = True) -> None:
        self.reshard_after_forward = reshard_after_forward

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Gather each group for forward, blocks that reshard again for backward, and reduce-scatter gradients once.

        Parameters are cut along their first dim, padded to a multiple of n; (n-1) chunks of each are sent.
        """
        n = ctx.world_size
        if n == 1:
            return {}
        blocks, root = _groups(job)
        again = 2 if self.reshard_after_forward else 1
        gathered = sum(_chunk_bytes(group, n) for group in blocks) * again * ctx.accumulate
        gathered += _chunk_bytes(root, n) * ctx.accumulate
        trained = [p for group in (*blocks, root) for p in group if p.requires_grad and id(p) not in _unused(job)]
        sent = {
            "all_gather": Fraction((n - 1) * gathered),
            "reduce_scatter": Fraction((n - 1) * _chunk_bytes(trained, n)),
        }
        scalars = sum(p.element_size() for p in _scalars(job) if p.requires_grad)
        return sent | ({"all_reduce": Fraction(2 * (n - 1), n) * scalars} if scalars else {})

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Wrap each block, then the rest; parameters that several blocks share belong to the rest."""
        return _FsdpTrainer(job, ctx, self.reshard_after_forward)


@final
class _FsdpTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext, reshard_after_forward: bool) -> None:
        self._job = job
        self._ctx = ctx
        group = ctx.comm.group
        mesh = DeviceMesh.from_group(group, ctx.device.type) if group is not None else None
        self._scalars = _scalars(job)
        ignored: set[nn.Parameter] = set(self._scalars)
        for parameter in ignored:
            ctx.comm.broadcast(parameter.data)
        if mesh is not None:
            for block in _own_blocks(job):
                fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward, ignored_params=ignored)
            fully_shard(job.model, mesh=mesh, ignored_params=ignored)
        self._optimizer = job.optimizer(job.model.parameters())

    def step(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = backward(self._job, self._ctx, self._job.model, batch, hold=self._unsynchronised)
        for scalar in self._scalars:
            if scalar.grad is not None:
                self._ctx.comm.mean(scalar.grad)
        self._optimizer.step()
        return loss

    @contextmanager
    def _unsynchronised(self) -> Iterator[None]:
        """Keep whole gradients of this micro-batch instead of reduce-scattering them."""
        model = self._job.model
        if not isinstance(model, FSDPModule):
            yield
            return
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    def full_parameters(self) -> Mapping[str, Tensor]:
        return {
            name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in self._job.model.named_parameters()
        }


def _own_blocks(job: Job) -> list[nn.Module]:
    """Return the blocks that share no parameter with another, and have any."""
    blocks = [job.model.get_submodule(name) for name in job.blocks]
    holders: dict[int, int] = {}
    for block in blocks:
        for parameter in block.parameters():
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    owned = [b for b in blocks if any(p.dim() for p in b.parameters())]
    return [b for b in owned if all(holders[id(p)] == 1 for p in b.parameters())]


def _groups(job: Job) -> tuple[list[list[nn.Parameter]], list[nn.Parameter]]:
    """Return the parameters of each wrapped block, and those of the rest; scalars, which are never cut, left out."""
    blocks = [[p for p in block.parameters() if p.dim()] for block in _own_blocks(job)]
    taken = {id(p) for group in blocks for p in group}
    return blocks, [p for p in job.model.parameters() if p.dim() and id(p) not in taken]


def _chunk_bytes(parameters: Sequence[nn.Parameter], n: int) -> int:
    """Return the bytes of one rank's chunks: rows rounded up, times what a row holds."""
    return sum(-(-p.shape[0] // n) * (p.numel() // max(1, p.shape[0])) * p.element_size() for p in parameters)


def _scalars(job: Job) -> list[nn.Parameter]:
    """Return parameters without dims, which cannot be cut; they stay replicated."""
    return [p for p in job.model.parameters() if not p.dim()]


def _unused(job: Job) -> set[int]:
    named = dict(job.model.named_parameters())
    return {id(named[name]) for name in job.unused}
