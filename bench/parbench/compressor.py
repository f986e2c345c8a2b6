"""A Compressor turns gradients into smaller messages and their messages back into an average, on every rank the same.

rank 0   gradients ─encode─> message ─┐ averaged by the engine's collective, ┌─decode─> average of all ranks
rank 1   gradients ─encode─> message ─┘ or gathered by all                   └─decode─> average of all ranks

B a gradient's shape, M a message's.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from parbench.paper import Paper
from parbench.record import Agrees

if TYPE_CHECKING:
    from torch import Tensor

    from parbench.channel import Channel
    from parbench.compact import Compact


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """What became of one gradient.

    Attributes:
        average: over the ranks, of the gradient's shape and type; the same bits on every rank.
        contribution: makes what this rank's message stood for, of the same shape; with error feedback the rest is kept
            for the next step.

    Either may be compact, which saves passes over all of the gradient.
    """

    average: Tensor | Compact
    contribution: Callable[[], Tensor | Compact]


def uncompressed(mean_B: Tensor, grad_B: Tensor) -> Reduced:
    """Return what becomes of a gradient that is averaged as it is."""
    return Reduced(average=mean_B, contribution=lambda: grad_B)


Finish = Callable[[], Sequence[Reduced]]

Claims = Literal["nothing", "unbiased", "contraction"]


class Compressor(abc.ABC):
    """A way to exchange gradients in fewer bytes; its constructor's arguments are its parameters.

    It may keep state by key, never by place: groups change, names stay. One object serves one rank's one trainer; it
    leaves the gradients that it is given as they are, which are finite: the engine takes out what is not.

    Attributes:
        name: what users write.
        paper: where it comes from.
        agrees: how closely training with it is training in one process.
        linear: whether the average is the mean of the ranks' contributions.
        feedback: whether the engine adds what was not sent to the next step's gradient.
        claims: of a contribution: "unbiased" (its mean over draws is the gradient), "contraction" (on average nearer to
            the gradient than zero is), or "nothing".
        repeatable: whether a contribution, compressed in the same step again, stays as it is.
        momentum_correction: whether the engine compresses the optimizer's momentum in its place (DGC, section 3.1).
        clip: the norm that the average of a parameter's gradients may have: the engine cuts each rank's to it, divided
            by the root of the number of ranks (DGC, section 3.2). None leaves them alone.
        roundoff: relative error that adding up its messages makes, beside that of the gradients' own type.
        largest: the magnitude beyond which its messages' numbers are infinite.
        passes_through: whether messages are the gradients: the engine then exchanges their own memory.
        per: what it is given: each "tensor" of a group in its shape, or the whole "group" as one flat vector.
        rank: this rank, as `begin` says.
        world_size: ranks that exchange, as `begin` says.
        seed: of whatever it draws, the same on all ranks, as `begin` says.
        step: number of the step, which the engine counts.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    agrees: Agrees = "differently"
    linear: bool
    feedback: bool = False
    claims: Claims = "nothing"
    repeatable: bool = False
    momentum_correction: ClassVar[bool] = False
    clip: float | None = None
    roundoff: ClassVar[float] = 0.0
    largest: ClassVar[float] = math.inf
    passes_through: ClassVar[bool] = False
    per: Literal["tensor", "group"] = "tensor"
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    step: int = 0

    def __repr__(self) -> str:
        """Return the name, as users write the compressor without arguments."""
        return self.name

    def begin(self, *, rank: int, world_size: int, seed: int) -> None:
        """Say who this rank is; called once, before the first exchange."""
        self.rank, self.world_size, self.seed = rank, world_size, seed

    @abc.abstractmethod
    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Average the gradients of one group over all ranks, in as many exchanges as it takes.

        Args:
            grads: gradients of any shapes and one type.
            keys: of each, its parameter's name, or that of the group.
            channel: what carries messages; exchanges of a list of tensors are one message.
        """

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Begin the same, and return what ends it without a further exchange: other groups go on meanwhile."""
        reduced = self.reduce(grads, keys, channel)
        return lambda: reduced

    def message_bytes(self, elements: int, element_bytes: int) -> int:
        """Return about how many bytes a gradient of so many elements puts into a message; fusion rules plan by it."""
        return elements * element_bytes

    def sent(
        self, shapes: Sequence[tuple[int, ...]], element_bytes: int, channel: Carriage
    ) -> Mapping[str, Fraction] | None:
        """Return the closed form of what a rank sends for one group, or None where there is none.

        Args:
            shapes: of the gradients that `reduce` is given.
            element_bytes: of one of their elements.
            channel: what messages cost.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carriage:
    """What one rank's messages cost on a channel.

    Attributes:
        averaged: (elements, bytes of one) of a message that is averaged -> operation -> logical bytes sent.
        gathered: bytes of a message that all ranks gather -> operation -> logical bytes sent.
        world_size: ranks that exchange.
    """

    averaged: Callable[[int, int], Mapping[str, Fraction]]
    gathered: Callable[[int], Mapping[str, Fraction]]
    world_size: int

    def together(self, *costs: Mapping[str, Fraction]) -> Mapping[str, Fraction]:
        """Return the sum of costs, operation by operation."""
        total: dict[str, Fraction] = {}
        for cost in costs:
            for op, size in cost.items():
                total[op] = total.get(op, Fraction(0)) + size
        return total
