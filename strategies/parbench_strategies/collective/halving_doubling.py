"""halving_doubling exchanges halves with ever nearer ranks until each holds the sum of one part, and then goes back.

4 ranks, parts a b c d        halving            doubling
rank 0   sends    cd to 2  | b to 1   | a to 1 | ab to 2
rank 1   sends    cd to 3  | a to 0   | b to 0 | ab to 3
rank 2   sends    ab to 0  | d to 3   | c to 3 | cd to 0
rank 3   sends    ab to 1  | c to 2   | d to 2 | cd to 1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from parbench.api import Message, Paper, PeerCollective, Round


@final
class HalvingDoubling(PeerCollective):
    """Adds a tensor in 2 log2 n rounds: halves with a rank far away, quarters with a nearer one, and back.

    Where n is no power of two, each rank above the largest one p that fits in n first gives all to another, and gets
    the sum at the end. Additions form a tree: of pairs p/2 apart, then of these pairs' sums p/4 apart, and so on. A
    rank sends 2(p-1)/p of the tensor where p divides it; one of the extra ranks all of it, and who stands for one, all
    of it besides.
    """

    name = "halving_doubling"
    paper = Paper(
        "Optimization of Collective Communication Operations in MPICH (Thakur, Rabenseifner and Gropp, 2005)",
        "https://doi.org/10.1177/1094342005051521",
    )

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Fold the extra ranks in, halve, double, and give the extra ranks the sum."""
        power = 1 << (world_size.bit_length() - 1)
        extra = world_size - power

        def everything(peer: int) -> tuple[Message]:
            return (Message(0, elements, peer),)

        # Ranks 0 to 2 extra - 1 form pairs, of which the even one stands for both.
        if rank < 2 * extra and rank % 2:
            yield Round(sends=everything(rank - 1))
            yield Round(puts=everything(rank - 1))
            return
        stands = rank < 2 * extra
        if stands:
            yield Round(adds=everything(rank + 1))
        yield from _halving_doubling(elements, rank // 2 if stands else rank - extra, power, extra)
        if stands:
            yield Round(sends=everything(rank + 1))


def _halving_doubling(elements: int, place: int, power: int, extra: int) -> Iterator[Round]:
    def rank_of(other: int) -> int:
        return 2 * other if other < extra else other + extra

    low, high, apart = 0, elements, power // 2
    back: list[Round] = []
    while apart:
        peer, middle = rank_of(place ^ apart), (low + high) // 2
        first, second = Message(low, middle, peer), Message(middle, high, peer)
        kept, given = (second, first) if place & apart else (first, second)
        yield Round(sends=(given,), adds=(kept,))
        back.append(Round(sends=(kept,), puts=(given,)))
        low, high, apart = kept.start, kept.stop, apart // 2
    yield from reversed(back)
