"""A Boundary is what one block gives the next, per sample: found by running the chain on tensors without values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from parbench.api import Job, RankContext
from parbench_strategies.tensor import without_values


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
    found: list[Boundary] = []

    def run() -> None:
        x = torch.empty((1, *inputs.shape[1:]), dtype=inputs.dtype, device=ctx.device)
        for name in job.blocks:
            x = job.model.get_submodule(name)(x)
            found.append(Boundary(shape=tuple(x.shape[1:]), dtype=x.dtype))

    with FakeTensorMode(), torch.no_grad(), ctx.autocast():
        without_values(job.model, run, ctx.device)
    return found
