"""A PipelineTrainer steps one rank of a pipeline: micro-batches through the runtime, then replicas, then the optimizer.

d replicas, P ranks of a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Comm, Holding, Job, RankContext, Trainer
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._closed import Grid
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
    """

    def __init__(
        self, job: Job, ctx: RankContext, grid: Grid, layout: Layout, given: Sequence[Boundary], microbatches: int
    ) -> None:
        self._job, self._grid, self._layout, self._microbatches = job, grid, layout, microbatches
        start = grid.replica * grid.ranks
        comm = ctx.comm.subset(range(start, start + grid.ranks))
        self._ctx = replace(ctx, rank=grid.place, world_size=grid.ranks, comm=comm)
        replicas = ctx.comm.subset(range(grid.place, grid.replicas * grid.ranks, grid.ranks))
        _equalise(job.model, ctx.comm)
        self._holders = layout.holders(job)
        self._shapes = {name: (p.shape, p.dtype) for name, p in job.model.named_parameters()}
        self._buffers = {name: (b.shape, b.dtype) for name, b in job.model.named_buffers()}
        named = dict(job.model.named_parameters())
        self._own = {name: p for name, p in named.items() if grid.place in self._holders[name]}
        self._tied = _tied(job, self._holders, self._ctx)
        stages = kept(job, layout, grid.place)
        self._replicas = Replicas(replicas, stages, {id(named[name]) for name in job.unused})
        self._runtime = Runtime(job, self._ctx, layout, stages, given, self._replicas.complete)
        self._optimizer = job.optimizer(self._own.values())

    def step(self, batch: Batch) -> Tensor | None:
        for parameter in self._own.values():
            parameter.grad = None
        share = self._grid.share(batch).to(self._ctx.device)
        scale = self._grid.replicas / batch.samples
        losses = []
        for k, part in enumerate(share.micro(self._ctx.accumulate)):
            parts = list(part.micro(self._microbatches))
            losses.append(self._runtime.run(parts, scale, last=k == self._ctx.accumulate - 1))
        self._replicas.wait()
        for parameter, comm in self._tied:
            if parameter.grad is not None:
                comm.sum(parameter.grad)
        self._optimizer.step()
        return torch.stack(losses).sum() if losses[0] is not None else None  # type: ignore[arg-type]

    def full_parameters(self) -> Mapping[str, Tensor]:
        return {
            name: self._everywhere(self._own.get(name), self._shapes[name], holders[0])
            for name, holders in self._holders.items()
        }

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
        return Holding(parameters=list(self._own.values()), optimizers=[self._optimizer], buffers=buffers)

    def notes(self) -> Mapping[str, str | int | float]:
        return {
            "stages": "+".join(map(str, self._layout.sizes)),
            "stages of this rank": " ".join(map(str, self._layout.stages_of(self._grid.place))),
            "replica": self._grid.replica,
            "pipeline rank": self._grid.place,
            "peak live micro-batches": self._runtime.peak_live,
        }

    def _everywhere(self, mine: Tensor | None, like: tuple[torch.Size, torch.dtype], owner: int) -> Tensor:
        shape, dtype = like
        tensor = torch.empty(shape, dtype=dtype, device=self._ctx.device) if mine is None else mine.detach().clone()
        return self._ctx.comm.broadcast(tensor, owner)


def _equalise(model: nn.Module, comm: Comm) -> None:
    """Give every rank the weights of rank 0, as replicas and shared weights must begin alike."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            comm.broadcast(tensor)


def _tied(job: Job, holders: Mapping[str, Sequence[int]], ctx: RankContext) -> list[tuple[nn.Parameter, Comm]]:
    """Return this rank's parameters that other ranks of the pipeline hold too, with the ranks that do."""
    named = dict(job.model.named_parameters())
    shared = [(name, ranks) for name, ranks in holders.items() if len(ranks) > 1 and ctx.rank in ranks]
    return [(named[name], ctx.comm.subset(ranks)) for name, ranks in shared if named[name].requires_grad]
