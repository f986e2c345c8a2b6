"""ring passes parts from each rank to the next, once round to add them up and once more to hand out the sums.

3 ranks, parts a b c          adding up                 handing out
rank 0   sends   a      | c+                    | b++     | a++
rank 1   sends   b      | a+                    | c++     | b++
rank 2   sends   c      | b+                    | a++     | c++
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from parbench.api import Paper, PeerCollective, Round
from parbench_strategies.collective._ring import ring_rounds


@final
class Ring(PeerCollective):
    """Adds a tensor in 2(n-1) rounds, in each of which every rank sends a part of it to the next rank.

    Part c of n is added in the order of ranks c, c+1, ..., c-1. A rank sends all parts but two twice, and those two
    once: 2(n-1)/n of the tensor where n divides it.
    """

    name = "ring"
    paper = Paper(
        "Bandwidth optimal all-reduce algorithms for clusters of workstations (Patarasuk and Yuan, 2009)",
        "https://doi.org/10.1016/j.jpdc.2008.09.002",
    )

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Add up parts, then hand out sums."""
        return ring_rounds(elements, list(range(world_size)), rank)
