"""Feedback keeps what compression left out of each gradient, and adds it to the next one.

sent = compress(gradient + rest),   rest = gradient + rest - sent       per parameter name, whatever the groups are

With momentum m (DGC, Lin et al., 2018, section 3.1) what is compressed is a velocity, which ends where it was sent:

velocity = m velocity + gradient,   sent = compress(velocity + rest),   velocity = 0 where sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from parbench_strategies.replicated._layout import Lane, Layout


@final
class Feedback:
    """The rests of one rank, and its velocities where there is momentum, laid out as its gradients are.

    Args:
        layout: of the gradients.
        momentum: decay of the velocities; 0 keeps none.

    Attributes:
        rests: what was left out, zero at first.
    """

    def __init__(self, layout: Layout, momentum: float = 0.0) -> None:
        self.rests = layout.empty_copy()
        self._momentum = momentum
        self._velocities = layout.empty_copy() if momentum else None

    def moved_to(self, other: Feedback) -> Feedback:
        """Fill `other`, which is laid out for other groups, with what is kept here, and return it."""
        for name in other.rests.places:
            other.rests.scatter(name, self.rests.gather(name))
            if self._velocities is not None and other._velocities is not None:
                other._velocities.scatter(name, self._velocities.gather(name))
        return other

    def add(self, number: int, flat_N: Tensor) -> None:
        """Turn the gradients of group `number` into what is compressed of them."""
        if self._velocities is not None:
            velocity_N = self._velocities.lanes[number].flat
            flat_N.copy_(velocity_N.mul_(self._momentum).add_(flat_N))
        flat_N.add_(self.rests.lanes[number].flat)

    def keep(self, number: int, given: Sequence[Tensor], contributions: Sequence[Tensor]) -> None:
        """Keep what is left of the gradients of a group.

        Args:
            number: of the group.
            given: what was compressed, rests included: the group's parts, or all of it as one.
            contributions: what was sent of each.
        """
        rests = _places(self.rests.lanes[number], given)
        for rest, grad, sent in zip(rests, given, contributions, strict=True):
            torch.sub(grad.view(rest.shape), sent.view(rest.shape), out=rest)
        if self._velocities is None:
            return
        for velocity, sent in zip(_places(self._velocities.lanes[number], given), contributions, strict=True):
            velocity.masked_fill_(sent.view(velocity.shape) != 0, 0.0)


def _places(lane: Lane, given: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a group as the compressor was given them: in their shapes, or all of it as one."""
    # A group of one tensor too: its elements may lie in another order than its shape says.
    whole = len(given) == 1 and given[0].shape == lane.flat.shape
    return [lane.flat] if whole else [part.shaped for part in lane.parts]
