"""A Boundary is what one block gives the next, per sample: found by running the chain on tensors without values."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from parbench.api import Job, RankContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Shape (without the samples) and type of what passes from a block to the next."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample."""
        return prod(self.shape) * self.dtype.itemsize


def boundaries(job: Job, ctx: RankContext) -> list[Boundary]:
    """Return what each block of the job gives, in order; the last one's is the model's output.

    The model may be on any device, meta included; nothing is computed, and its values are not copied.
    """
    inputs = job.batch(0).inputs
    with FakeTensorMode(), torch.compiler.set_stance("force_eager"), torch.no_grad(), ctx.autocast():
        blocks = [_hollow(job.model, ctx.device).get_submodule(name) for name in job.blocks]
        x = torch.empty((1, *inputs.shape[1:]), dtype=inputs.dtype, device=ctx.device)
        found = []
        for block in blocks:
            x = block(x)
            found.append(Boundary(shape=tuple(x.shape[1:]), dtype=x.dtype))
    return found


def _hollow(model: nn.Module, device: torch.device) -> nn.Module:
    """Copy a model with tensors that have shapes and no values (inside a FakeTensorMode)."""

    def hollow(tensor: Tensor) -> Tensor:
        like = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        return nn.Parameter(like, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else like

    # What is in the memo is not copied but replaced.
    memo = {id(tensor): hollow(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo)
