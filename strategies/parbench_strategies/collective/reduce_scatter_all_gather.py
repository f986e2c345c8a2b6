"""reduce_scatter_all_gather adds up one part per rank, then shares the sums: two halves that can be used apart.

3 ranks, parts a b c       reduce-scatter          all-gather
rank 0   sends       b to 1, c to 2   |   a++ to 1 and 2
rank 1   sends       a to 0, c to 2   |   b++ to 0 and 2
rank 2   sends       a to 0, b to 1   |   c++ to 0 and 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

from torch import Tensor

from parbench.api import Comm, Handle, InFlight, Message, Paper, PeerCollective, Round, bounds, carry_out


@final
class ReduceScatterAllGather(PeerCollective):
    """Adds a tensor in two rounds: every rank adds up its own part, and gives the sum to all others.

    Part k is added in the order of ranks k, 0, 1, ..., n-1. A rank sends all parts but its own, and its own to n-1
    others: 2(n-1)/n of the tensor where n divides it. (gloo's own reduce_scatter moves as many bytes as an all-reduce,
    so that the two halves would together send 3(n-1)/n: docs/metrics.md.)
    """

    name = "reduce_scatter_all_gather"
    paper = Paper(
        "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce Pipelining (Zhang et al., 2023)",
        "https://arxiv.org/abs/2302.12445",
    )
    halves = True

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """One half after the other."""
        yield self.reduce_scatter(elements, rank, world_size)
        yield self.all_gather(elements, rank, world_size)

    def start_reduce_scatter(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Do the first half, and return when it is done."""
        return self._carried_out(self.reduce_scatter, flat_N, comm)

    def start_all_gather(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Do the second half, and return when it is done."""
        return self._carried_out(self.all_gather, flat_N, comm)

    def _carried_out(self, half: Callable[[int, int, int], Round], flat_N: Tensor, comm: Comm) -> InFlight:
        carry_out([half(flat_N.numel(), comm.rank, comm.world_size)], flat_N, comm)
        return Handle(None, flat_N)

    def reduce_scatter(self, elements: int, rank: int, world_size: int) -> Round:
        """Return the first half, after which a rank holds the sum of its part alone."""
        borders = bounds(elements, world_size)
        others = [other for other in range(world_size) if other != rank]
        return Round(
            sends=[Message(borders[other], borders[other + 1], other) for other in others],
            adds=[Message(borders[rank], borders[rank + 1], other) for other in others],
        )

    def all_gather(self, elements: int, rank: int, world_size: int) -> Round:
        """Return the second half, after which it holds all sums."""
        borders = bounds(elements, world_size)
        others = [other for other in range(world_size) if other != rank]
        return Round(
            sends=[Message(borders[rank], borders[rank + 1], other) for other in others],
            puts=[Message(borders[other], borders[other + 1], other) for other in others],
        )
