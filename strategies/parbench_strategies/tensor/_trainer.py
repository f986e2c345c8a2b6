"""A TensorsTrainer is a job whose layers a tensor group shares out, and whose samples tensor groups share out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from parbench.api import Batch, Comm, Job, ModelTrainer, RankContext, backward
from parbench_strategies.tensor._edges import Edge, passed
from parbench_strategies.tensor._exchange import Exchange
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._plan import Plan
from parbench_strategies.tensor._vocabulary import CutLogits, Part, looked_up

# Where a row-cut layer's bias is kept out of the layer's own sight: each rank would add it to its term.
_BIAS = "bias_after_sum"


@final
class TensorsTrainer(ModelTrainer):
    """Cuts layers, puts hooks on the model where activations cross edges, and exchanges gradients.

    Args:
        job: its model is changed for good.
        ctx: this rank.
        grid: where it is.
        plan: what becomes of each layer.
    """

    def __init__(self, job: Job, ctx: RankContext, grid: Grid, plan: Plan) -> None:
        # Every rank has built the same weights (Workload.build), and keeps its part of them.
        self._grid, self._plan = grid, plan
        self._group, replicas = grid.tensor_group(ctx.comm), grid.replica_group(ctx.comm)
        self._lengths = {name: job.model.get_parameter(name).shape[dim] for name, dim in plan.cuts.items()}
        _cut(job.model, plan, grid)
        self._hooks = list(_hooks(job.model, plan, self._part(), self._group))
        # Everything is a plain tensor, so that one optimizer takes it all: fused kernels take no mixture with DTensors.
        alone = replace(ctx, rank=grid.replica, world_size=grid.replicas, comm=replicas)
        super().__init__(job, alone, [job.optimizer(job.model.parameters())])
        trained = {name: p for name, p in _named(job.model) if p.requires_grad}
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
        return {name: self._whole(name, p) if name in self._plan.cuts else p for name, p in _named(self.job.model)}

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the grid, and this rank's place in it."""
        grid = self._grid
        first = grid.replica * grid.degree
        group = f"ranks {first} to {first + grid.degree - 1}"
        return {"degree": grid.degree, "replicas": grid.replicas, "tensor group": group}

    def close(self) -> None:
        self.exchange.close()
        for hook in self._hooks:
            hook.remove()

    def _part(self) -> Part | None:
        """Return this rank's part of the vocabulary, if it is cut."""
        if self._plan.words is None:
            return None
        group = self._group
        start, stop = self._grid.bounds(self._lengths[self._plan.words])
        return Part(start=start, size=stop - start, exchange=lambda x: group.all_gather(x) if x.numel() else [x])

    @torch.no_grad()
    def _whole(self, name: str, part: Tensor) -> Tensor:
        # Parts that differ in length are padded for the exchange.
        dim, length, n = self._plan.cuts[name], self._lengths[name], self._grid.degree
        longest = -(-length // n)
        shape = list(part.shape)
        shape[dim] = longest
        sent = part.new_zeros(shape)
        sent.narrow(dim, 0, part.shape[dim]).copy_(part)
        sizes = [(place + 1) * length // n - place * length // n for place in range(n)]
        parts = self._group.all_gather(sent)
        return torch.cat([one.narrow(dim, 0, size) for one, size in zip(parts, sizes, strict=True)], dim)


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters by the names they have in the job's own model."""
    for name, parameter in model.named_parameters():
        yield (f"{name.removesuffix(_BIAS)}bias" if name.endswith(_BIAS) else name), parameter


def _cut(model: nn.Module, plan: Plan, grid: Grid) -> None:
    for name, dim in plan.cuts.items():
        whole = model.get_parameter(name)
        start, stop = grid.bounds(whole.shape[dim])
        own = whole.detach().narrow(dim, start, stop - start).clone(memory_format=torch.contiguous_format)
        part = nn.Parameter(own, requires_grad=whole.requires_grad)
        for module in model.modules():
            for key, held in list(module.named_parameters(recurse=False)):
                if held is whole:
                    setattr(module, key, part)
    for layer in plan.biased:
        module = model.get_submodule(layer)
        bias = module.get_parameter("bias")
        module.register_parameter("bias", None)
        module.register_parameter(_BIAS, bias)


def _hooks(model: nn.Module, plan: Plan, part: Part | None, group: Comm) -> Iterator[RemovableHandle]:
    for name, edge in plan.before.items():
        yield model.get_submodule(name).register_forward_pre_hook(_entering(edge, group, cast=name in plan.layers))
    for name, edge in plan.after.items():
        yield model.get_submodule(name).register_forward_hook(_leaving(edge, group))
    if plan.logits is None or part is None:
        return
    yield model.get_submodule(plan.logits).register_forward_hook(_giving_logits(part))
    for name in plan.lookups:
        module = model.get_submodule(name)
        module.forward = functools.partial(looked_up, module, part)


def _entering(edge: Edge, group: Comm, *, cast: bool) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        (x,) = inputs
        if cast and torch.is_autocast_enabled(x.device.type):
            # The layer would do it anyway; here it halves what is exchanged.
            x = x.to(torch.get_autocast_dtype(x.device.type))
        crossed: Tensor = passed(edge, x, group)
        return crossed

    return hook


def _leaving(edge: Edge, group: Comm) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(module: nn.Module, inputs: object, term: Tensor) -> Tensor:
        y: Tensor = passed(edge, term, group)
        bias = getattr(module, _BIAS, None)
        return y if bias is None else y + bias.to(y.dtype)

    return hook


def _giving_logits(part: Part) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(module: nn.Module, inputs: object, logits: Tensor) -> Tensor:
        return CutLogits.of(logits, part)

    return hook
