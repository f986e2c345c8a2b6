"""Shards let the ranks that hold the same stages share them out, with torch's fully_shard on each stage by itself.

    gather the stage | F0 F1 B0 F2 B1 ... B3 | reduce-scatter its gradients once, free it

A stage stays whole between the micro-batches of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from parbench.api import Comm, Job, RankContext
from parbench_strategies.pipelined import Peers, Stage
from parbench_strategies.sharded import Grid, Options, optimizers_of, shard, units_of, whole


@final
class Shards(Peers):
    """One rank's part of its stages.

    Args:
        ctx: this rank.
        grid: one row of all that share the stages out.
        options: how they do it.
        comm: these ranks.
    """

    def __init__(self, ctx: RankContext, grid: Grid, options: Options, comm: Comm) -> None:
        self._ctx = replace(ctx, rank=comm.rank, world_size=comm.world_size, comm=comm)
        self._grid = grid
        self._options = options
        self._scalars: list[nn.Parameter] = []
        self._roots: dict[int, FSDPModule] = {}

    def join(self, job: Job, stages: Mapping[int, Stage], skipped: set[int]) -> Mapping[int, nn.Parameter]:
        replaced: dict[int, nn.Parameter] = {}
        mesh = self._grid.mesh(self._ctx)
        for chunk, stage in stages.items():
            alone = stage.alone(job)
            units = units_of(alone, self._options.min_parameters)
            before = list(_places(stage.chain))
            shard(alone, self._ctx, mesh, self._options, units)
            replaced |= {id(parameter): module.get_parameter(key) for module, key, parameter in before}
            self._scalars += units.scalars
            if isinstance(stage.chain, FSDPModule):
                self._roots[chunk] = stage.chain
            for module in stage.chain.modules():
                if isinstance(module, FSDPModule):
                    # Itself, which is there: left alone, torch gathers what ran before it in another micro-batch.
                    module.set_modules_to_backward_prefetch([module])
        self._hold()
        return replaced

    def optimizers(self, job: Job, parameters: Iterable[nn.Parameter]) -> list[torch.optim.Optimizer]:
        return optimizers_of(job, parameters)

    def last(self, chunk: int) -> None:
        _synchronise(self._roots[chunk], True)

    def complete(self, chunk: int) -> None:
        return None

    def wait(self) -> None:
        for scalar in self._scalars:
            if scalar.grad is not None:
                self._ctx.comm.mean(scalar.grad)
        self._hold()

    def whole(self, parameter: nn.Parameter) -> Tensor:
        return whole(parameter, self._ctx.device)

    def _hold(self) -> None:
        """Keep stages whole, and gradients where they are, until a chunk comes to its last backward."""
        for root in self._roots.values():
            _synchronise(root, False)


def _synchronise(root: FSDPModule, on: bool) -> None:
    root.set_requires_gradient_sync(on)
    root.set_reshard_after_backward(on)
    root.set_is_last_backward(on)


def _places(chain: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield where parameters are: sharding puts others in their place."""
    for module in chain.modules():
        for key, parameter in module.named_parameters(recurse=False):
            yield module, key, parameter
