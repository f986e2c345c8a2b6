"""A TensorsTrainer is a job whose layers a tensor group shares out, and whose samples tensor groups share out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

from torch import Tensor

from parbench.api import Batch, Job, ModelTrainer, RankContext, backward
from parbench_strategies.tensor._exchange import Exchange
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._layers import CutLayers
from parbench_strategies.tensor._plan import Plan


@final
class TensorsTrainer(ModelTrainer):
    """Cuts layers, and exchanges gradients.

    Args:
        job: its model is changed for good.
        ctx: this rank.
        grid: where it is.
        plan: what becomes of each layer.
    """

    def __init__(self, job: Job, ctx: RankContext, grid: Grid, plan: Plan) -> None:
        # Every rank has built the same weights (Workload.build), and keeps its part of them.
        self._grid = grid
        group, replicas = grid.tensor_group(ctx.comm), grid.replica_group(ctx.comm)
        self._layers = CutLayers(job.model, plan, grid, group)
        # Everything is a plain tensor, so that one optimizer takes it all: fused kernels take no mixture with DTensors.
        alone = replace(ctx, rank=grid.replica, world_size=grid.replicas, comm=replicas)
        super().__init__(job, alone, [job.optimizer(job.model.parameters())])
        trained = {name: p for name, p in self._layers.named() if p.requires_grad}
        rest = {name: trained.pop(name) for name in job.unused if name in trained}
        self.exchange = Exchange(trained, rest, plan.summed, ctx.comm, replicas)

    def step(self, batch: Batch) -> Tensor:
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch, hold=self.exchange.held)
        self.exchange.finish()
        self.update()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return whole parameters by the names they have in the job's own model."""
        return {name: self._layers.whole(name, p) for name, p in self._layers.named()}

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the grid, and this rank's place in it."""
        grid = self._grid
        first = grid.replica * grid.degree
        group = f"ranks {first} to {first + grid.degree - 1}"
        return {"degree": grid.degree, "replicas": grid.replicas, "tensor group": group}

    def close(self) -> None:
        self.exchange.close()
        self._layers.close()
