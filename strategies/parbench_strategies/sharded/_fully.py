"""What fsdp and hsdp share: a model cut over ranks unit by unit with torch's fully_shard, and its trainer.

    forward    gather 0 | unit 0 | free 0, gather 1 | unit 1 | ...
    backward   gather 1 | unit 1 | free 1, reduce-scatter its gradients, gather 0 | unit 0 | ...

Where there are several copies of the model, what is left of a gradient is then all-reduced over them.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    backward,
)
from parbench_strategies.sharded import _forms
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options
from parbench_strategies.sharded._units import Units, units_of


class FullySharded(Strategy):
    """Shards parameters, gradients and optimizer state over the rows of a grid of ranks.

    Args:
        options: what the strategy was told.
    """

    agrees = "closely"
    consumes_model = True
    shards = ("parameters", "gradients", "optimizer state")

    def __init__(self, options: Options) -> None:
        self.options = options

    @abc.abstractmethod
    def grid(self, world_size: int) -> Grid:
        """Return how so many ranks are laid out."""

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where an option cannot be had on this device, in this precision or without shards."""
        return self.options.unsupported(job, ctx, self.grid(ctx.world_size).shards)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Gathers of parameters and one reduction of gradients, padding included."""
        return _forms.traffic(job, ctx, self.grid(ctx.world_size), self.options)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """Each gather and the reduce-scatter move a ring's share of the model."""
        return _forms.textbook(job, ctx, self.grid(ctx.world_size), self.options)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """This rank's chunk of everything, padding included."""
        return _forms.memory(job, ctx, self.grid(ctx.world_size), self.options)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut the model unit by unit; where a rank holds a whole copy there is nothing to cut, and DDP averages."""
        grid = self.grid(ctx.world_size)
        if grid.shards == 1:
            return _WholeTrainer(job, ctx)
        return _CutTrainer(job, ctx, grid, self.options)


@final
class _WholeTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._ddp = _replicated(job, ctx) if ctx.comm.group is not None else None

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        if self._ddp is None:
            loss = backward(self.job, self.ctx, self.job.model, batch)
        else:
            loss = backward(self.job, self.ctx, self._ddp, batch, hold=self._ddp.no_sync)
        self.update()
        return loss

    def close(self) -> None:
        # A wrapper alive when its process group is destroyed can hang the rank.
        self._ddp = None


def _replicated(job: Job, ctx: RankContext) -> DistributedDataParallel:
    return DistributedDataParallel(
        job.model,
        device_ids=[ctx.device.index or 0] if ctx.device.type == "cuda" else None,
        process_group=ctx.comm.group,
        find_unused_parameters=bool(job.unused),
    )


@final
class _CutTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, grid: Grid, options: Options) -> None:
        units = units_of(job, options.min_parameters)
        self._scalars = units.scalars
        for scalar in self._scalars:
            ctx.comm.broadcast(scalar.data)
        _cut(job, ctx, grid, options, units)
        parameters = list(job.model.parameters())
        # One optimizer per kind: fused and foreach kernels take cut parameters and whole ones, but not both at once.
        kinds = ([p for p in parameters if isinstance(p, DTensor) is cut] for cut in (True, False))
        super().__init__(job, ctx, [job.optimizer(kind) for kind in kinds if kind])
        # Parameters come cast out of the gather; autocast would cast a second time.
        self._computes = replace(ctx, dtype=torch.float32) if options.mixed_precision else ctx

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self._computes, self.job.model, batch, hold=self._unsynchronised)
        for scalar in self._scalars:
            if scalar.grad is not None:
                self.ctx.comm.mean(scalar.grad)
        self.update()
        return loss

    @contextmanager
    def _unsynchronised(self) -> Iterator[None]:
        """Keep whole gradients of this micro-batch instead of reduce-scattering them."""
        for module in _wrapped([self.job.model]):
            module.set_requires_gradient_sync(False)
        yield
        for module in _wrapped([self.job.model]):
            module.set_requires_gradient_sync(True)

    def full_parameters(self) -> Mapping[str, Tensor]:
        return {name: _whole(p, self.ctx.device) for name, p in self.job.model.named_parameters()}


def _whole(parameter: Tensor, device: torch.device) -> Tensor:
    """Gather a parameter on `device`: the ranks' group cannot reach shards that were offloaded."""
    there = parameter.to(device)
    return there.full_tensor() if isinstance(there, DTensor) else there


def _cut(job: Job, ctx: RankContext, grid: Grid, options: Options, units: Units) -> None:
    """Wrap each unit, then the rest of the model, and say what is gathered ahead of what."""
    mesh, ignored = grid.mesh(ctx), set(units.scalars)
    offload = CPUOffloadPolicy() if options.offload else OffloadPolicy()
    cast = MixedPrecisionPolicy()
    if options.mixed_precision:
        cast = MixedPrecisionPolicy(param_dtype=ctx.dtype, reduce_dtype=torch.float32)
    for unit in units.blocks:
        fully_shard(
            list(unit.modules),
            mesh=mesh,
            reshard_after_forward=options.reshard_after_forward,
            mp_policy=cast,
            offload_policy=offload,
            ignored_params=ignored,
        )
    # Activations stay as they are from unit to unit; only the outputs, of which the loss is made, go back to fp32.
    outputs = replace(cast, output_dtype=torch.float32) if options.mixed_precision else cast
    fully_shard(job.model, mesh=mesh, mp_policy=outputs, offload_policy=offload, ignored_params=ignored)
    if options.prefetch:
        _prefetch(_wrapped([job.model, *(unit.modules[0] for unit in units.blocks)]), options.prefetch)


def _prefetch(modules: Sequence[FSDPModule], depth: int) -> None:
    """Let each module gather the next `depth` ahead in forward, and the previous ones in backward.

    Args:
        modules: the root, which runs first both ways, and one module of each unit in forward order.
        depth: units gathered ahead.
    """
    root, units = modules[0], modules[1:]
    root.set_modules_to_forward_prefetch(list(units[:depth]))
    root.set_modules_to_backward_prefetch(list(units[::-1][:depth]))
    for k, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(list(units[k + 1 : k + 1 + depth]))
        unit.set_modules_to_backward_prefetch(list(units[:k][::-1][:depth]))


def _wrapped(modules: Sequence[nn.Module]) -> list[FSDPModule]:
    return [module for module in modules if isinstance(module, FSDPModule)]
