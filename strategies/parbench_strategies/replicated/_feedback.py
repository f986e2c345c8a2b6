"""Feedback keeps what compression left out of each gradient, and adds it to the next one.

sent = compress(gradient + rest),   rest = gradient + rest - sent       per parameter name, whatever the groups are
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from parbench_strategies.replicated._layout import Layout


@final
class Feedback:
    """The rests of one rank, laid out as its gradients are.

    Args:
        layout: of the rests, zero at first.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def moved_to(self, layout: Layout) -> Feedback:
        """Return the same rests, laid out for other groups."""
        for name in layout.places:
            layout.scatter(name, self._layout.gather(name))
        return Feedback(layout)

    def add(self, number: int, flat_N: Tensor) -> None:
        """Add to the gradients of group `number` what was left out of them before."""
        flat_N.add_(self._layout.lanes[number].flat)

    def keep(self, number: int, given: Sequence[Tensor], contributions: Sequence[Tensor]) -> None:
        """Keep what is left of the gradients of a group.

        Args:
            number: of the group.
            given: what was compressed, rests included: the group's parts, or all of it as one.
            contributions: what was sent of each.
        """
        lane = self._layout.lanes[number]
        rests = [part.shaped for part in lane.parts] if len(given) == len(lane.parts) else [lane.flat]
        for rest, grad, sent in zip(rests, given, contributions, strict=True):
            torch.sub(grad.view(rest.shape), sent.view(rest.shape), out=rest)
