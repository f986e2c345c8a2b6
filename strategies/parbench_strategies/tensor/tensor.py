"""Tensor parallelism: every rank computes a part of each layer for the whole batch, as Megatron-LM cuts layers.

    x ──> column-cut layer ──> bend ──> row-cut layer ──> all-reduce ──> + bias ──> y
          its outputs are shared out    its inputs are      forward
    the gradient of x is all-reduced in backward

B batch, D width of what passes between layers.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward


@final
class Tensors(Strategy):
    """Cuts layers by column and row where the workload says so; everything else is replicated."""

    paper = Paper(
        "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism (Shoeybi et al., 2019)",
        "https://arxiv.org/abs/1909.08053",
    )
    agrees = "closely"
    consumes_model = True

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where nothing can be cut, or where a cut would divide what must stay whole."""
        cuts = _cuts(job)
        if not cuts and ctx.world_size > 1:
            return "tensor parallelism has nothing to cut: the workload declares no shardings"
        for name, cut in cuts.items():
            pieces = _pieces(job, name, cut)
            if pieces % ctx.world_size:
                fitting = [str(n) for n in range(2, pieces + 1) if pieces % n == 0 and n <= 64]
                return (
                    f"{name} has {pieces} pieces that must stay whole (heads, or rows), which {ctx.world_size} ranks "
                    f"cannot share equally; numbers of ranks that can: {', '.join(fitting) or 'none'}"
                )
        return None

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """An all-reduce of each row-cut layer's output, and of the gradient of each column-cut layer's input.

        The textbook form for a transformer is four all-reduces of B T D per layer; a column-cut layer whose input needs
        no gradient has none in backward.
        """
        if ctx.world_size == 1:
            return {}
        elements = _exchanged_elements(job, ctx.accumulate)
        return {"all_reduce": Fraction(2 * (ctx.world_size - 1), ctx.world_size) * elements * 4}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Cut the layers; every rank gets the whole batch."""
        return _TensorsTrainer(job, ctx)


@final
class _TensorsTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        # Every rank works on every sample.
        self._ctx = replace(ctx, rank=0, world_size=1)
        group = ctx.comm.group
        if group is not None:
            mesh = DeviceMesh.from_group(group, ctx.device.type)
            parallelize_module(job.model, mesh, _plan(job))
        # One optimizer per kind: fused and foreach kernels take cut parameters and whole ones, but not both at once.
        cut: list[nn.Parameter] = [p for p in job.model.parameters() if isinstance(p, DTensor)]
        whole: list[nn.Parameter] = [p for p in job.model.parameters() if not isinstance(p, DTensor)]
        self._optimizers = [job.optimizer(parameters) for parameters in (cut, whole) if parameters]

    def step(self, batch: Batch) -> Tensor:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = backward(self._job, self._ctx, self._job.model, batch)
        for optimizer in self._optimizers:
            optimizer.step()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return {
            name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in self._job.model.named_parameters()
        }


def _cuts(job: Job) -> dict[str, str]:
    """Return the name of every cut weight -> "column" or "row"."""
    names = [name for name, p in job.model.named_parameters() if p.dim() > 1]
    return {name: cut for pattern, cut in job.shardings.items() for name in fnmatch.filter(names, pattern)}


def _pieces(job: Job, name: str, cut: str) -> int:
    """Return into how many pieces the cut dim of a weight may be divided."""
    weight = job.model.get_parameter(name)
    length = weight.shape[0 if cut == "column" else 1]
    whole = next((size for pattern, size in job.whole.items() if fnmatch.fnmatch(name, pattern)), 1)
    return length // whole


def _plan(job: Job) -> dict[str, ParallelStyle]:
    styles: dict[str, ParallelStyle] = {}
    for name, cut in _cuts(job).items():
        module = name.rpartition(".")[0]
        styles[module] = ColwiseParallel() if cut == "column" else RowwiseParallel()
    return styles


def _exchanged_elements(job: Job, parts: int) -> int:
    """Return how many elements are all-reduced in a step on batch 0, from shapes alone."""
    model = copy.deepcopy(job.model).to("meta")
    cuts = {name.rpartition(".")[0]: cut for name, cut in _cuts(job).items()}
    seen: list[int] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        cut = cuts[names[module]]
        if cut == "row":
            seen.append(output.numel())
        elif inputs[0].requires_grad:
            seen.append(inputs[0].numel())

    names = {module: name for name, module in model.named_modules() if name in cuts}
    for module in names:
        module.register_forward_hook(note)
    for part in job.batch(0).micro(parts):
        model(part.to(torch.device("meta")).inputs)
    return sum(seen)
