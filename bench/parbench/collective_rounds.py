"""A PeerCollective is rounds of messages between ranks: pure data, which one runtime here carries out and counts.

    round of rank 1        sends [a:b] to 2        the slice as it was when the round began
                           adds  [c:d] from 0      onto what it holds
                           puts  [e:f] from 0      in place of what it holds

N elements of the tensor, P of one message.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from parbench.collective import Collective, InFlight
from parbench.comm import Comm, Handle

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Message:
    """Consecutive elements, on their way to or from a peer.

    Attributes:
        start: the first element.
        stop: one after the last.
        peer: the other rank.
    """

    start: int
    stop: int
    peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one rank does at a time: it goes on once all of it is done.

    What one rank sends another in a round arrives in the order in which it is sent: what is to be added, then what is
    to be put. Slices that are sent must not overlap those that are added or put, unless their sender cannot have sent
    before it took what is sent here (a result comes back after its parts have gone).

    Attributes:
        sends: to peers.
        adds: from peers, added in this order.
        puts: from peers.
    """

    sends: Sequence[Message] = ()
    adds: Sequence[Message] = ()
    puts: Sequence[Message] = ()


class PeerCollective(Collective):
    """A collective made of messages between two ranks each; a class says what its rounds are."""

    @abc.abstractmethod
    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Yield what `rank` does, in order."""

    def start(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Add over all ranks, and return when all is done."""
        carry_out(self.rounds(flat_N.numel(), comm.rank, comm.world_size), flat_N, comm)
        return Handle(None, flat_N)

    def sent(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """Add up what the rounds send; the formula is in the docstring of each collective."""
        return sent_by(self.rounds(elements, rank, world_size), element_bytes)


def carry_out(rounds: Iterable[Round], flat_N: Tensor, comm: Comm) -> None:
    """Do what one rank has to do, on its tensor.

    Args:
        rounds: of this rank.
        flat_N: one-dimensional and contiguous.
        comm: the ranks.
    """
    for one in rounds:
        # Memory of its own for each: they arrive in any order, and are added in that of the list.
        arriving = [flat_N.new_empty(message.stop - message.start) for message in one.adds]
        receives = [(part_P, message.peer) for part_P, message in zip(arriving, one.adds, strict=True)]
        receives += [(flat_N[message.start : message.stop], message.peer) for message in one.puts]
        sends = [(flat_N[message.start : message.stop], message.peer) for message in one.sends]
        received, sent = comm.exchange(sends, receives)
        for handle, message in zip(received, one.adds, strict=False):
            flat_N[message.start : message.stop].add_(handle.wait())
        for handle in (*received[len(one.adds) :], *sent):
            handle.wait()


def sent_by(rounds: Iterable[Round], element_bytes: int) -> Mapping[str, Fraction]:
    """Return the bytes that rounds send, as a byte counter would."""
    elements = sum(message.stop - message.start for one in rounds for message in one.sends)
    return {"send": Fraction(elements * element_bytes)} if elements else {}


def bounds(elements: int, parts: int) -> list[int]:
    """Return where each of `parts` consecutive parts begins, and where the last ends; sizes differ by at most one."""
    return [k * elements // parts for k in range(parts + 1)]
