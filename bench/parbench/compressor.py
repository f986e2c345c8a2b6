"""A Compressor turns gradients into smaller messages and their messages back into an average, on every rank the same.

rank 0   gradients ─encode─> message ─┐ averaged by the engine's collective, ┌─decode─> average of all ranks
rank 1   gradients ─encode─> message ─┘ or gathered by all                   └─decode─> average of all ranks

B a gradient's shape, M a message's.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from parbench.paper import Paper
from parbench.record import Agrees

if TYPE_CHECKING:
    from torch import Tensor

    from parbench.channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """What became of one gradient.

    Attributes:
        average: over the ranks, of the gradient's shape and type; the same bits on every rank.
        contribution: makes what this rank's message stood for, of the same shape; with error feedback the rest is kept
            for the next step.
    """

    average: Tensor
    contribution: Callable[[], Tensor]


Finish = Callable[[], Sequence[Reduced]]


class Compressor(abc.ABC):
    """A way to exchange gradients in fewer bytes; its constructor's arguments are its parameters.

    It may keep state by key, never by place: groups change, names stay. One object serves one rank's one trainer; it
    leaves the gradients that it is given as they are.

    Attributes:
        name: what users write.
        paper: where it comes from.
        agrees: how closely training with it is training in one process.
        linear: whether the average is the mean of the ranks' contributions.
        feedback: whether the engine adds what was not sent to the next step's gradient.
        passes_through: whether messages are the gradients: the engine then exchanges their own memory.
        per: what it is given: each "tensor" of a group in its shape, or the whole "group" as one flat vector.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    agrees: Agrees = "differently"
    linear: ClassVar[bool]
    feedback: bool = False
    passes_through: ClassVar[bool] = False
    per: ClassVar[Literal["tensor", "group"]] = "tensor"

    def __repr__(self) -> str:
        """Return the name, as users write the compressor without arguments."""
        return self.name

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
    """

    averaged: Callable[[int, int], Mapping[str, Fraction]]
    gathered: Callable[[int], Mapping[str, Fraction]]


class MeanCompressor(Compressor):
    """A compressor whose messages add up: they are averaged as they are, by whatever collective."""

    linear = True

    @abc.abstractmethod
    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        """Return the message of a gradient; as many elements of one type on every rank."""

    @abc.abstractmethod
    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Tensor:
        """Return what a message stands for, this rank's or the average of all, in the shape and type of `grad_B`."""

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Encode, average, decode."""
        return self.start(grads, keys, channel)()

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Encode and begin to average; decode at the end."""
        messages = [self.encode(grad, key) for grad, key in zip(grads, keys, strict=True)]
        averaging = channel.start_mean(messages)

        def finish() -> list[Reduced]:
            return [
                Reduced(
                    average=self.decode(mean, grad, key),
                    contribution=lambda own=own, grad=grad, key=key: self.decode(own, grad, key),  # type: ignore[misc]
                )
                for mean, own, grad, key in zip(averaging(), messages, grads, keys, strict=True)
            ]

        return finish


class GatherCompressor(Compressor):
    """A compressor whose messages do not add up: every rank gets those of all, and averages what they stand for."""

    linear = True

    @abc.abstractmethod
    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        """Return the parts of a gradient's message, such as values and indices; as long on every rank."""

    @abc.abstractmethod
    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        """Return what a message stands for, this rank's or another's, in the shape and type of `grad_B`."""

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Encode, gather, decode."""
        return self.start(grads, keys, channel)()

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Encode and begin to gather; decode all ranks' messages at the end, and average in the order of ranks."""
        messages = [list(self.encode(grad, key)) for grad, key in zip(grads, keys, strict=True)]
        gathering = channel.start_gather(messages)

        def finish() -> list[Reduced]:
            found = []
            for of_ranks, grad, key, own in zip(gathering(), grads, keys, messages, strict=True):
                total = self.decode(of_ranks[0], grad, key)
                for message in of_ranks[1:]:
                    total = total + self.decode(message, grad, key)
                found.append(
                    Reduced(
                        average=total / len(of_ranks),
                        contribution=lambda own=own, grad=grad, key=key: self.decode(own, grad, key),  # type: ignore[misc]
                    )
                )
            return found

        return finish
