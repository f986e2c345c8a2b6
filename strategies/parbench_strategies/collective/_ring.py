"""The rounds of a ring over some of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parbench.api import Message, Round, bounds


def ring_rounds(elements: int, members: Sequence[int], rank: int) -> Iterator[Round]:
    """Yield what `rank`, one of `members`, does to add a tensor over them.

    Args:
        elements: of the tensor.
        members: ranks, in the order of the ring.
        rank: the one that does it.
    """
    n, place = len(members), members.index(rank)
    following, previous = members[(place + 1) % n], members[(place - 1) % n]
    borders = bounds(elements, n)

    def part(number: int, peer: int) -> tuple[Message]:
        k = number % n
        return (Message(borders[k], borders[k + 1], peer),)

    for step in range(n - 1):
        yield Round(sends=part(place - step, following), adds=part(place - step - 1, previous))
    for step in range(n - 1):
        yield Round(sends=part(place + 1 - step, following), puts=part(place - step, previous))
