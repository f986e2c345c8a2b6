"""A Collective is an algorithm by which ranks add up a tensor: torch's own, or rounds of messages between ranks."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

from parbench.paper import Paper

if TYPE_CHECKING:
    from torch import Tensor

    from parbench.comm import Comm


class InFlight(Protocol):
    """A tensor on its way; what holds one must not touch the tensor before `wait`."""

    def wait(self) -> Tensor:
        """Block until the tensor holds the result, and return it."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""


class Collective(abc.ABC):
    """An algorithm that adds a flat tensor over all ranks; its constructor's arguments are its parameters.

    The sum is bit for bit the same on every rank, so that replicas stay equal. Ranks start collectives in one order.

    Attributes:
        name: what users write.
        paper: where it comes from.
        immediate: whether `start` returns at once, so that it may be called where something else goes on.
        proportional: whether one message costs as many bytes as its halves, wherever it is cut.
        halves: whether it can first leave the sum of a part on each rank, and share the sums out later.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    immediate: ClassVar[bool] = False
    proportional: ClassVar[bool] = False
    halves: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Return the name, as users write the collective without arguments."""
        return self.name

    def refuses(self, world_size: int) -> str | None:
        """Return a sentence saying why so many ranks cannot use it and which can, or None."""
        return None

    def unsupported(self, device: str) -> str | None:
        """Return a sentence saying why it cannot move tensors that lie on such a device ("cpu", "cuda"), or None."""
        return None

    def connected(self, comm: Comm) -> Collective:
        """Return this collective ready for these ranks: itself, unless it needs connections of its own.

        Every rank calls this, in one order with all exchanges, and closes what it is given.
        """
        return self

    def close(self) -> None:
        """End connections of its own; what is on its way fails. Again does nothing."""
        return None

    @abc.abstractmethod
    def start(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Start adding `flat_N` over all ranks, in place.

        Unless it is `immediate`, it may return when all is done: who has something else to do calls it in a thread.

        Args:
            flat_N: one-dimensional and contiguous, as long on every rank; zero elements are allowed.
            comm: the ranks.
        """

    def start_reduce_scatter(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Start the first half, where there are `halves`: each rank ends with the sum of a part, in its place.

        Raises:
            NotImplementedError: there are none.
        """
        raise NotImplementedError(f"{self.name} has no halves")

    def start_all_gather(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Start the second half: each rank ends with all sums, bit for bit as `start` would give them.

        Raises:
            NotImplementedError: there are none.
        """
        raise NotImplementedError(f"{self.name} has no halves")

    @abc.abstractmethod
    def sent(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """Return what one rank sends to add up so many elements: operation -> logical bytes, as `counting` has them."""

    def sent_in_halves(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """Return the same for both halves."""
        return self.sent(elements, element_bytes, rank, world_size)
