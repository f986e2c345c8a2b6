"""Half weights are read and written by an optimizer that computes in single precision.

    weight, gradient (half) ── read ──> copies (fp32) ── optimizer ──> copies ── written, rounded ──> weight (half)

Nothing is remembered in single precision from step to step but the optimizer's state: its squares of gradients would
vanish in half precision, and steps would be divided by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn


@final
class Wide:
    """Parameters as an optimizer sees them: those that are half as copies in single precision.

    Attributes:
        seen: what the optimizer is given, in order.

    Args:
        parameters: of the model.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.seen = [p if p.dtype is torch.float32 else nn.Parameter(p.detach().float()) for p in parameters]
        self._pairs = [(p, copy) for p, copy in zip(parameters, self.seen, strict=True) if copy is not p]

    @torch.no_grad()
    def read(self) -> None:
        """Bring the copies up to date, their gradients too; what has none is not stepped."""
        for parameter, copy in self._pairs:
            copy.copy_(parameter)
            grad: Tensor | None = parameter.grad
            copy.grad = None if grad is None else grad.float()

    @torch.no_grad()
    def write(self) -> None:
        """Round what the optimizer made of the copies into the parameters."""
        for parameter, copy in self._pairs:
            if copy.grad is not None:
                parameter.copy_(copy)

    def scale(self, factor: float) -> None:
        """Multiply the gradients that the optimizer sees."""
        for parameter in self.seen:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def drop(self) -> None:
        """Take all gradients away: then the optimizer does nothing."""
        for parameter in self.seen:
            parameter.grad = None
