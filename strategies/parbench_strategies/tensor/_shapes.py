"""Shapes stand for a model where its values do not matter: a dry run of it, or the parts of it that a rank holds.

In a dry run the model itself runs, with other tensors in the place of its parameters: a copy of it would not do, since
a block whose `forward` was replaced (recomputation) would still call the original's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from parbench.api import Batch, Job
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._layers import cut_parameters
from parbench_strategies.tensor._plan import Plan


def dry_run(job: Job, part: Batch, *, backward: bool) -> None:
    """Run `part` through the job's model and loss on the meta device; hooks on its modules see what passes."""
    there = part.to(torch.device("meta"))

    def run() -> None:
        loss = job.loss(job.model(there.inputs).float(), there)
        if backward and loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]

    without_values(job.model, run)


def without_values(model: nn.Module, run: Callable[[], None], device: torch.device | None = None) -> None:
    """Call `run` while the tensors of `model` are shapes: everything happens in its order, and nothing is computed.

    Args:
        model: on any device; compiled parts of it run as they were written.
        run: takes what it wants through the model.
        device: where the shapes claim to be, inside a FakeTensorMode; None puts them on the meta device.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": _shape_of(b, device) for name, b in model.named_buffers()}
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = _shape_of(parameter, device).requires_grad_(parameter.requires_grad)
    with torch.compiler.set_stance("force_eager"):
        functional_call(_Run(model, run), tensors, ())


def cut_shapes(job: Job, plan: Plan, grid: Grid) -> Job:
    """Return the job with the parameters that this rank of a tensor group holds, as shapes, under the same names."""
    memo: dict[int, object] = {
        id(p): nn.Parameter(_shape_of(p), requires_grad=p.requires_grad) for p in job.model.parameters()
    }
    memo |= {id(b): _shape_of(b) for b in job.model.buffers()}
    model = copy.deepcopy(job.model, memo)
    cut_parameters(model, plan, grid)
    return replace(job, model=model)


def _shape_of(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device or "meta")


@final
class _Run(nn.Module):
    def __init__(self, model: nn.Module, run: Callable[[], None]) -> None:
        super().__init__()
        self.model = model
        self._run = run

    def forward(self) -> None:
        self._run()
