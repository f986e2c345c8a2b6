"""Pools are where an engine's gradients lie: one layout for each step whose gradients may be there at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from parbench_strategies.replicated._layout import Lane, Layout, Planned


@final
class Pools:
    """Layouts that are alike; gradients lie in the one in use.

    Attributes:
        sizes: of each group, of how many gradients it has elements.
        lanes_of: name -> the groups that have elements of its gradient.
        scattered: names of gradients that lie in several places, so that parameters must be given copies.

    Args:
        parameters: by name.
        slots: how many.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], slots: int) -> None:
        self._parameters = parameters
        self._slots = slots
        self._layouts: Sequence[Layout] = ()

    def lay_out(self, planned: Sequence[Planned], order: Sequence[str]) -> None:
        """Make them for a plan, and use the first; `order` is that in which gradients become ready."""
        self._layouts = [Layout(planned, self._parameters, order) for _ in range(self._slots)]
        self.use(0)
        lanes = self.layout.lanes
        self.sizes = [len(lane.waits_for) for lane in lanes]
        self.lanes_of: dict[str, list[int]] = {name: [] for name in self._parameters}
        for number, lane in enumerate(lanes):
            for name in lane.waits_for:
                self.lanes_of[name].append(number)
        self.scattered = [name for name in self._parameters if name not in self.layout.views]

    def use(self, step: int) -> None:
        """Use the pool of a step."""
        self.layout = self._layouts[step % self._slots]

    @property
    def lanes(self) -> Sequence[Lane]:
        """The groups, in the order in which they become ready."""
        return self.layout.lanes

    def take(self, name: str, gradient: Tensor, scale: float) -> None:
        """Copy a gradient into the pool in use, multiplied; its parameter sees it there if it lies in one piece."""
        view = self.layout.views.get(name)
        if view is None:
            self.layout.scatter(name, gradient.reshape(-1) * scale)
            return
        if gradient is not view:
            torch.mul(gradient, scale, out=view)
        self._parameters[name].grad = view

    def show(self, names: Sequence[str]) -> None:
        """Let parameters see the gradients that lie in the pool in use."""
        for name in names:
            parameter, view = self._parameters[name], self.layout.views.get(name)
            if view is not None:
                parameter.grad = view
                continue
            if parameter.grad is None or parameter.grad.layout is not torch.strided:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(self.layout.gather(name).view(parameter.shape))
