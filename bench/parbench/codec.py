"""A codec is a compressor by parts: encode and decode around messages that are averaged or gathered, or rounds.

MeanCompressor     encode ──collective──> mean of the messages ──decode──> average
GatherCompressor   encode ──all-gather──> messages of all ranks ──decode each──> mean
RoundsCompressor   whatever it exchanges, one round after the other

A gradient whose message would be no shorter than itself stays as it is, and is averaged. B a gradient's shape, M a
message's.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from parbench.compact import dense
from parbench.compressor import Carriage, Compressor, Finish, Reduced, uncompressed

if TYPE_CHECKING:
    from torch import Tensor

    from parbench.channel import Channel
    from parbench.compact import Compact

Shape = tuple[int, ...]


class MeanCompressor(Compressor):
    """A compressor whose messages add up: they are averaged as they are, by whatever collective."""

    linear = True

    @abc.abstractmethod
    def encode(self, grad_B: Tensor, key: str) -> Tensor:
        """Return the message of a gradient; as many elements of one type on every rank."""

    @abc.abstractmethod
    def decode(self, message_M: Tensor, grad_B: Tensor, key: str) -> Tensor | Compact:
        """Return what a message stands for, this rank's or the average of all, in the shape and type of `grad_B`."""

    def size(self, shape: Shape, element_bytes: int) -> tuple[int, int]:
        """Return how many elements the message of such a gradient has, and the bytes of one."""
        return math.prod(shape), element_bytes

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Encode, average, decode."""
        return self.start(grads, keys, channel)()

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Encode and begin to average; decode at the end."""
        staying = [self._stays(tuple(grad.shape), grad.element_size()) for grad in grads]
        messages = [
            grad if stays else self.encode(grad, key) for grad, key, stays in zip(grads, keys, staying, strict=True)
        ]
        averaging = channel.start_mean(messages)

        def finish() -> list[Reduced]:
            found = []
            for mean, own, grad, key, stays in zip(averaging(), messages, grads, keys, staying, strict=True):
                if stays:
                    found.append(uncompressed(mean, grad))
                    continue
                found.append(
                    Reduced(average=self.decode(mean, grad, key), contribution=partial(self.decode, own, grad, key))
                )
            return found

        return finish

    def message_bytes(self, elements: int, element_bytes: int) -> int:
        """Return the bytes of its message, as if it were flat."""
        count, size = self.size((elements,), element_bytes)
        return min(count * size, elements * element_bytes)

    def sent(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        """Return what the collective sends for all messages, one of each size of elements."""
        elements: dict[int, int] = {}
        for shape in shapes:
            stays = self._stays(shape, element_bytes)
            count, size = (math.prod(shape), element_bytes) if stays else self.size(shape, element_bytes)
            elements[size] = elements.get(size, 0) + count
        return channel.together(*(channel.averaged(count, size) for size, count in elements.items()))

    def _stays(self, shape: Shape, element_bytes: int) -> bool:
        count, size = self.size(shape, element_bytes)
        return count * size >= math.prod(shape) * element_bytes


class GatherCompressor(Compressor):
    """A compressor whose messages do not add up: every rank gets those of all, and averages what they stand for.

    An all-gather of m bytes sends (n-1) m from a rank, a ring all-reduce of S bytes 2(n-1)/n S: a gradient is
    compressed only where m n < 2 S.
    """

    linear = True

    @abc.abstractmethod
    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        """Return the parts of a gradient's message, such as values and indices."""

    @abc.abstractmethod
    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor | Compact:
        """Return what a message stands for, this rank's or another's, in the shape and type of `grad_B`."""

    def length(self, shape: Shape, element_bytes: int) -> int | None:
        """Return the bytes of the message of such a gradient, all parts; None where they follow the numbers in it."""
        return None

    def average(self, messages: Sequence[Sequence[Tensor]], grad_B: Tensor, key: str) -> Tensor | Compact:
        """Return the result of all ranks' messages: the mean of what they stand for, added in the order of ranks."""
        total_B = dense(self.decode(messages[0], grad_B, key))
        for message in messages[1:]:
            total_B = total_B + dense(self.decode(message, grad_B, key))
        return total_B / len(messages)

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Encode, gather, decode."""
        return self.start(grads, keys, channel)()

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Encode and begin to gather; decode all ranks' messages at the end."""
        coded = [not self._stays(tuple(grad.shape), grad.element_size(), channel.world_size) for grad in grads]
        messages = [list(self.encode(grad, key)) for grad, key, one in zip(grads, keys, coded, strict=True) if one]
        gathering = self._gathering(messages, grads, coded, channel)
        averaging = channel.start_mean([grad for grad, one in zip(grads, coded, strict=True) if not one])

        def finish() -> list[Reduced]:
            means = iter(averaging())
            gathered = iter(zip(gathering(), messages, strict=True))
            found = []
            for grad, key, one in zip(grads, keys, coded, strict=True):
                if not one:
                    found.append(uncompressed(next(means), grad))
                    continue
                of_ranks, own = next(gathered)
                average = self.average(of_ranks, grad, key)
                found.append(Reduced(average=average, contribution=partial(self.decode, own, grad, key)))
            return found

        return finish

    def message_bytes(self, elements: int, element_bytes: int) -> int:
        """Return the bytes of its message, as if it were flat, or of the gradient where that is not known."""
        length = self.length((elements,), element_bytes)
        return elements * element_bytes if length is None else min(length, elements * element_bytes)

    def sent(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        """Return what is sent of all messages, and of what stays as it is; None where lengths follow the numbers."""
        dense = length = 0
        for shape in shapes:
            own = self.length(shape, element_bytes)
            if own is None:
                return None
            if self._stays(shape, element_bytes, channel.world_size):
                dense += math.prod(shape)
            else:
                length += own
        costs = [channel.averaged(dense, element_bytes)] if dense else []
        return channel.together(*costs, *([channel.gathered(length)] if length else []))

    def _stays(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        length = 0 if 0 in shape else self.length(shape, element_bytes)
        return length is not None and not _shorter(length, math.prod(shape) * element_bytes, world_size)

    def _gathering(
        self, messages: list[list[Tensor]], grads: Sequence[Tensor], coded: list[bool], channel: Channel
    ) -> Callable[[], list[list[list[Tensor]]]]:
        """Begin to gather; take out of `messages` and `coded` what turns out too long on any rank."""
        places = [k for k, one in enumerate(coded) if one]
        if not places:
            return list
        if self.length(tuple(grads[places[0]].shape), grads[0].element_size()) is not None:
            return channel.start_gather(messages)
        lengths = channel.lengths(messages)
        dense = [grads[k].numel() * grads[k].element_size() for k in places]
        short = [m for m, size in enumerate(dense) if _shorter(lengths.longest(m), size, channel.world_size)]
        for m, k in enumerate(places):
            coded[k] = m in short
        messages[:] = [messages[m] for m in short]
        return channel.start_gather_varied(messages, lengths.only(short)) if messages else list


class RoundsCompressor(Compressor):
    """A compressor that exchanges as often as it likes, each time what the last exchange told; all rounds in order."""

    @abc.abstractmethod
    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        """Whether it would send less of such a gradient, all rounds together, than the gradient is."""

    @abc.abstractmethod
    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Exchange all rounds of gradients that are compressed; begin the last, and return what ends it."""

    def cost(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        """Return the closed form of what a rank sends of gradients that are compressed, or None where there is none."""
        return None

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Exchange all rounds."""
        return self.start(grads, keys, channel)()

    def start(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        """Begin to average what stays as it is, exchange the rest."""
        coded = [self.compresses(tuple(grad.shape), grad.element_size(), channel.world_size) for grad in grads]
        dense = [grad for grad, one in zip(grads, coded, strict=True) if not one]
        averaging = channel.start_mean(dense)
        chosen = [k for k, one in enumerate(coded) if one]
        ending = self.exchange([grads[k] for k in chosen], [keys[k] for k in chosen], channel) if chosen else None

        def finish() -> list[Reduced]:
            stayed = iter([uncompressed(mean, grad) for mean, grad in zip(averaging(), dense, strict=True)])
            reduced = iter(ending() if ending else ())
            return [next(reduced if one else stayed) for one in coded]

        return finish

    def sent(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        """Return what is sent of what stays as it is, and of the rest."""
        coded = [shape for shape in shapes if self.compresses(shape, element_bytes, channel.world_size)]
        cost = self.cost(coded, element_bytes, channel) if coded else {}
        dense = sum(map(math.prod, shapes)) - sum(map(math.prod, coded))
        return None if cost is None else channel.together(channel.averaged(dense, element_bytes), cost)


def decoded(
    values: Sequence[Callable[[Tensor], Tensor | Compact]], means: Sequence[Tensor], owns: Sequence[Tensor]
) -> list[Reduced]:
    """Return what becomes of gradients whose messages' mean stands for their average.

    Args:
        values: of each, what a message stands for.
        means: of each, the mean of all ranks' messages.
        owns: of each, this rank's message.
    """
    return [
        Reduced(average=value(mean), contribution=partial(value, own))
        for value, mean, own in zip(values, means, owns, strict=True)
    ]


def _shorter(length: int, dense: int, world_size: int) -> bool:
    return length * max(2, world_size) < 2 * dense
