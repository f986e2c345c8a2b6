"""A Boundary is what one block gives the next, per sample: found by running the chain on tensors without values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from parbench.api import Job, RankContext
from parbench_strategies.tensor import without_values

Value = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Shape (without the samples) and type of what passes from a block to the next.

    Attributes:
        shape: of the message.
        dtype: of the message.
        parts: shape and type of each tensor where several pass together (one that skips blocks travels with what
            passes through them): the message is all of them, flat, one behind the other. Empty where one tensor passes.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()

    @staticmethod
    def of(value: Value) -> Boundary:
        """Return the boundary that `value` passes.

        Raises:
            ValueError: one of several tensors is not of a floating-point type.
        """
        if isinstance(value, Tensor):
            return Boundary(shape=tuple(value.shape[1:]), dtype=value.dtype)
        if not all(t.is_floating_point() for t in value):
            raise ValueError(f"tensors that pass a cut together must be floating-point, got {[t.dtype for t in value]}")
        dtype = reduce(torch.promote_types, (t.dtype for t in value))
        parts = tuple((tuple(t.shape[1:]), t.dtype) for t in value)
        return Boundary(shape=(sum(prod(shape) for shape, _ in parts),), dtype=dtype, parts=parts)

    def uncast(self) -> Boundary:
        """Return the boundary where nothing is computed in a lower precision."""
        parts = tuple((shape, torch.float32) for shape, _ in self.parts)
        return replace(self, dtype=torch.float32, parts=parts)

    def pack(self, value: Value) -> Tensor:
        """Return the message that holds `value`."""
        if isinstance(value, Tensor):
            return value
        return torch.cat([t.flatten(1).to(self.dtype) for t in value], 1)

    def unpack(self, message: Tensor) -> Value:
        """Return the value that a message holds."""
        if not self.parts:
            return message
        flat = torch.split(message, [prod(shape) for shape, _ in self.parts], 1)
        pairs = zip(flat, self.parts, strict=True)
        return tuple(t.reshape(t.shape[0], *shape).to(dtype) for t, (shape, dtype) in pairs)

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
        x: Value = torch.empty((1, *inputs.shape[1:]), dtype=inputs.dtype, device=ctx.device)
        for name in job.blocks:
            x = job.model.get_submodule(name)(x)
            found.append(Boundary.of(x))

    with FakeTensorMode(), torch.no_grad(), ctx.autocast():
        without_values(job.model, run, ctx.device)
    return found
