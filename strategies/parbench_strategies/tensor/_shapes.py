"""A dry run takes a job's model forward and backward on the meta device: shapes and order of everything, no values.

The model itself runs, with other tensors in the place of its parameters: a copy of it would not do, since a block whose
`forward` was replaced (recomputation) would still call the original's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from parbench.api import Batch, Job


def dry_run(job: Job, part: Batch, *, backward: bool) -> None:
    """Run `part` through the job's model and loss; hooks on its modules see what passes."""
    tensors: dict[str, Tensor] = {f"model.{name}": _shape_of(b) for name, b in job.model.named_buffers()}
    for name, parameter in job.model.named_parameters():
        tensors[f"model.{name}"] = _shape_of(parameter).requires_grad_(parameter.requires_grad)
    functional_call(_Pass(job, backward), tensors, (part.to(torch.device("meta")),))


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta", requires_grad=False)


@final
class _Pass(nn.Module):
    def __init__(self, job: Job, backward: bool) -> None:
        super().__init__()
        self.model = job.model
        self._loss: Callable[[Tensor, Batch], Tensor] = job.loss
        self._backward = backward

    def forward(self, part: Batch) -> None:
        loss = self._loss(self.model(part.inputs).float(), part)
        if self._backward and loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
