"""A PipelineTrainer steps one rank of a pipeline: micro-batches through the runtime, then replicas, then the optimizer.

d replicas, P ranks of a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parbench.api import Batch, Comm, Holding, Job, RankContext, Trainer
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._grid import Grid
from parbench_strategies.pipelined._layers import Layers, WholeLayers
from parbench_strategies.pipelined._peers import Peers
from parbench_strategies.pipelined._replicas import Replicas
from parbench_strategies.pipelined._runtime import Runtime
from parbench_strategies.pipelined._stages import Layout, kept


@final
class PipelineTrainer(Trainer):
    """One rank of a pipeline, or of several side by side.

    Args:
        job: whole; the blocks of other ranks lose their values.
        ctx: this rank, in the group of all ranks.
        grid: where it stands.
        layout: which rank of a pipeline holds which blocks.
        given: what each block gives.
        microbatches: into which a pass is cut.
        peers: makes this rank's side of those that hold the same stages.
        layers: what this rank holds of each layer.
    """

    def __init__(
        self,
        job: Job,
        ctx: RankContext,
        grid: Grid,
        layout: Layout,
        given: Sequence[Boundary],
        microbatches: int,
        peers: Callable[[Comm], Peers] = Replicas,
        layers: Layers | None = None,
    ) -> None:
        self._job, self._grid, self._layout, self._microbatches = job, grid, layout, microbatches
        self._ctx = replace(ctx, rank=grid.place, world_size=grid.ranks, comm=ctx.comm.subset(grid.pipeline))
        self._peers = peers(ctx.comm.subset(grid.peers))
        self._layers = layers or WholeLayers()
        _equalise(job.model, ctx.comm)
        self._holders = layout.holders(job)
        self._shapes = {name: (p.shape, p.dtype) for name, p in job.model.named_parameters()}
        self._buffers = {name: (b.shape, b.dtype) for name, b in job.model.named_buffers()}
        self._layers.cut(job.model)
        named = dict(self._layers.named())
        stages = kept(job, layout, grid.place, given)
        replaced = self._peers.join(job, stages, {id(named[name]) for name in job.unused})
        self._own = {name: replaced.get(id(p), p) for name, p in named.items() if grid.place in self._holders[name]}
        self._tied = self._shared()
        self._runtime = Runtime(job, self._ctx, layout, stages, given, self._peers)
        self._optimizers = self._peers.optimizers(job, self._own.values())

    def step(self, batch: Batch) -> Tensor | None:
        for parameter in self._own.values():
            parameter.grad = None
        share = self._grid.share(batch).to(self._ctx.device)
        scale = self._grid.replicas / batch.samples
        losses = []
        for k, part in enumerate(share.micro(self._ctx.accumulate)):
            parts = list(part.micro(self._microbatches))
            losses.append(self._runtime.run(parts, scale, last=k == self._ctx.accumulate - 1))
        self._peers.wait()
        self._layers.complete(self._own)
        for parameter, comm in self._tied:
            if (gradient := local_gradient(parameter)) is not None and gradient.numel():
                comm.sum(gradient)
        for optimizer in self._optimizers:
            optimizer.step()
        return torch.stack(losses).sum() if losses[0] is not None else None  # type: ignore[arg-type]

    def full_parameters(self) -> Mapping[str, Tensor]:
        found = {}
        for name, holders in self._holders.items():
            own = self._own.get(name)
            whole = None if own is None else self._layers.whole(name, self._peers.whole(own))
            found[name] = self._everywhere(whole, self._shapes[name], holders[0])
        return found

    def full_buffers(self) -> Mapping[str, Tensor]:
        blocks = {
            block: self._layout.rank_of(stage)
            for stage in range(len(self._layout.sizes))
            for block in self._layout.blocks_of(self._job, stage)
        }
        mine = dict(self._job.model.named_buffers())
        found = {}
        for name, like in self._buffers.items():
            owner = next(rank for block, rank in blocks.items() if name.startswith(f"{block}."))
            found[name] = self._everywhere(mine[name] if owner == self._grid.place else None, like, owner)
        return found

    def holding(self) -> Holding:
        buffers = [b for b in self._job.model.buffers() if b.device.type != "meta"]
        return Holding(parameters=list(self._own.values()), optimizers=self._optimizers, buffers=buffers)

    def notes(self) -> Mapping[str, str | int | float]:
        return {
            "stages": "+".join(map(str, self._layout.sizes)),
            "stages of this rank": " ".join(map(str, self._layout.stages_of(self._grid.place))),
            "replica": self._grid.replica,
            "pipeline rank": self._grid.place,
            "peak live micro-batches": self._runtime.peak_live,
        }

    def close(self) -> None:
        self._layers.close()

    def _shared(self) -> list[tuple[nn.Parameter, Comm]]:
        """Return this rank's parameters that other ranks of the pipeline hold too, with the ranks that do."""
        ranks = {name: holders for name, holders in self._holders.items() if len(holders) > 1 and name in self._own}
        trained = [name for name in ranks if self._own[name].requires_grad]
        return [(self._own[name], self._ctx.comm.subset(ranks[name])) for name in trained]

    def _everywhere(self, mine: Tensor | None, like: tuple[torch.Size, torch.dtype], owner: int) -> Tensor:
        shape, dtype = like
        tensor = torch.empty(shape, dtype=dtype, device=self._ctx.device) if mine is None else mine.detach().clone()
        return self._ctx.comm.broadcast(tensor, owner)


def _equalise(model: nn.Module, comm: Comm) -> None:
    """Give every rank the weights of rank 0, as replicas and shared weights must begin alike."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            comm.broadcast(tensor)


def local_gradient(parameter: nn.Parameter) -> Tensor | None:
    """Return what this rank has of a parameter's gradient."""
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
