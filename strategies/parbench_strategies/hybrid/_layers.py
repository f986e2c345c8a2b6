"""TensorLayers let a tensor group share out the layers of a pipeline's stages, or of a model to be sharded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import Comm
from parbench_strategies.pipelined import Layers, local_gradient
from parbench_strategies.tensor import CutLayers, Grid, Plan


@final
class TensorLayers(Layers):
    """One rank's part of every layer.

    Args:
        plan: what becomes of each layer.
        grid: where this rank is.
        group: the ranks that share out the layers.
    """

    def __init__(self, plan: Plan, grid: Grid, group: Comm) -> None:
        self._plan, self._grid, self._group = plan, grid, group

    def cut(self, model: nn.Module) -> None:
        self._layers = CutLayers(model, self._plan, self._grid, self._group)

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._layers.named()

    def complete(self, held: Mapping[str, nn.Parameter]) -> None:
        """Add up gradients of parts of the positions, in one message."""
        found = (local_gradient(held[name]) for name in sorted(self._plan.summed & held.keys()))
        gradients = [gradient for gradient in found if gradient is not None and gradient.numel()]
        if not gradients:
            return
        total = self._group.sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, part in zip(gradients, torch.split(total, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def whole(self, name: str, part: Tensor) -> Tensor:
        return self._layers.whole(name, part)

    def close(self) -> None:
        self._layers.close()
