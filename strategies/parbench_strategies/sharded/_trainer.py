"""A model that is sharded unit by unit with torch's fully_shard, and its trainer.

    forward    gather 0 | unit 0 | free 0, gather 1 | unit 1 | ...
    backward   gather 1 | unit 1 | free 1, reduce-scatter its gradients, gather 0 | unit 0 | ...

Where there are several copies of the model, what is left of a gradient is then all-reduced over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from parbench.api import Batch, Job, ModelTrainer, RankContext, backward
from parbench_strategies.sharded._grid import Grid
from parbench_strategies.sharded._options import Options
from parbench_strategies.sharded._units import Units, units_of


@final
class ShardedTrainer(ModelTrainer):
    """Shards a model over the rows of a grid and trains it.

    Args:
        job: its model is changed for good.
        ctx: this rank, among those of the grid.
        grid: how they are laid out.
        options: what the strategy was told.
        complete: called when gradients are reduced, before the optimizers step.
    """

    def __init__(
        self, job: Job, ctx: RankContext, grid: Grid, options: Options, complete: Callable[[], None] | None = None
    ) -> None:
        units = units_of(job, options.min_parameters)
        self._scalars = units.scalars
        for scalar in self._scalars:
            ctx.comm.broadcast(scalar.data)
        shard(job, ctx, grid.mesh(ctx), options, units)
        super().__init__(job, ctx, optimizers_of(job, job.model.parameters()))
        # Parameters come cast out of the gather; autocast would cast a second time.
        self._computes = replace(ctx, dtype=torch.float32) if options.mixed_precision else ctx
        self._complete = complete

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self._computes, self.job.model, batch, hold=self._unsynchronised)
        for scalar in self._scalars:
            if scalar.grad is not None:
                self.ctx.comm.mean(scalar.grad)
        if self._complete is not None:
            self._complete()
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
        return {name: whole(p, self.ctx.device) for name, p in self.job.model.named_parameters()}


def optimizers_of(job: Job, parameters: Iterable[nn.Parameter]) -> list[torch.optim.Optimizer]:
    """Return one optimizer per kind: fused and foreach kernels take cut parameters and whole ones, not both at once."""
    every = list(parameters)
    kinds = ([p for p in every if isinstance(p, DTensor) is cut] for cut in (True, False))
    return [job.optimizer(kind) for kind in kinds if kind]


def whole(parameter: Tensor, device: torch.device) -> Tensor:
    """Gather a parameter on `device`: the ranks' group cannot reach shards that were offloaded."""
    there = parameter.to(device)
    return there.full_tensor() if isinstance(there, DTensor) else there


def shard(job: Job, ctx: RankContext, mesh: DeviceMesh, options: Options, units: Units) -> None:
    """Wrap each unit, then the rest of the model, and say what is gathered ahead of what.

    Args:
        job: its model is changed for good.
        ctx: gives the precision.
        mesh: of the ranks that share it out.
        options: what the strategy was told.
        units: of the job.
    """
    ignored = set(units.scalars)
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
