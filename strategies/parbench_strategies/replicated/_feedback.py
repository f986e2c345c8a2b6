"""Feedback keeps what compression left out of each gradient, and adds it to the next one.

sent = compress(gradient + rest),   rest = gradient + rest - sent       per parameter name, whatever the groups are

With momentum m (DGC, Lin et al., 2018, section 3.1) what is compressed is a velocity, which ends where it was sent:

velocity = m velocity + gradient,   sent = compress(velocity + rest),   velocity = 0 where sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor

from parbench.api import Compact, Reduced, Sparse
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

    def add(self, number: int, flat_N: Tensor) -> Lane:
        """Add the gradients of group `number` to what is kept, and return that: it is what is compressed."""
        if self._velocities is not None:
            flat_N = self._velocities.lanes[number].flat.mul_(self._momentum).add_(flat_N)
        self.rests.lanes[number].flat.add_(flat_N)
        return self.rests.lanes[number]

    def keep(self, number: int, reduced: Sequence[Reduced], *, whole: bool) -> None:
        """Take what was sent out of what is kept.

        Args:
            number: of the group.
            reduced: what became of its parts.
            whole: whether they were compressed as one.
        """
        rests = self.rests.lanes[number].given(whole=whole)
        velocities = None if self._velocities is None else self._velocities.lanes[number].given(whole=whole)
        for place, (rest, one) in enumerate(zip(rests, reduced, strict=True)):
            sent = one.contribution()
            if velocities is not None:
                _forget(velocities[place], sent)
            if isinstance(sent, Compact):
                sent.take_from(rest)
            else:
                rest.sub_(sent.view(rest.shape))


def _forget(velocity: Tensor, sent: Tensor | Compact) -> None:
    """End a velocity where it was sent."""
    if isinstance(sent, Sparse) and velocity.is_contiguous():
        velocity.view(-1).index_fill_(0, sent.places[sent.values != 0], 0.0)
        return
    sent_B = sent.dense() if isinstance(sent, Compact) else sent
    velocity.masked_fill_(sent_B.view(velocity.shape) != 0, 0.0)
