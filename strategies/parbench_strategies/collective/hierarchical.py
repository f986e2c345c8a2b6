"""hierarchical adds up inside groups of ranks, then in a ring over the groups' leaders, and hands the sum back.

groups=2     rank 1 2 ──> 0   0 <──ring──> 3   0 ──> 1 2
             rank 4 5 ──> 3                    3 ──> 4 5
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from parbench.api import Message, Paper, PeerCollective, Round, bounds
from parbench_strategies.collective._ring import ring_rounds


@final
class Hierarchical(PeerCollective):
    """Adds a tensor inside each group, where links are fast, and only sums of groups between them.

    A group's leader, its first rank, adds the others' tensors in the order of ranks; the leaders' ring adds as `ring`.
    A leader of m ranks sends m-1 tensors and what a ring of all leaders sends; another rank sends one.

    Args:
        groups: of consecutive ranks, sizes differing by at most one.
    """

    name = "hierarchical"
    paper = Paper(
        "Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four Minutes "
        "(Jia et al., 2018)",
        "https://arxiv.org/abs/1807.11205",
    )

    def __init__(self, groups: int = 2) -> None:
        if groups < 1:
            raise ValueError(f"groups must be at least 1, got {groups}")
        self.groups = groups

    def refuses(self, world_size: int) -> str | None:
        """Every group needs a rank."""
        if world_size >= self.groups:
            return None
        return (
            f"hierarchical(groups={self.groups}) needs {self.groups} ranks, given {world_size}; the most groups are "
            f"{world_size}"
        )

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Give the leader everything; leaders make a ring; take the sum."""
        leaders = bounds(world_size, self.groups)
        mine = max(k for k, first in enumerate(leaders) if first <= rank)
        if rank != leaders[mine]:
            leader = (Message(0, elements, leaders[mine]),)
            yield Round(sends=leader)
            yield Round(puts=leader)
            return
        others = [Message(0, elements, other) for other in range(rank + 1, leaders[mine + 1])]
        yield Round(adds=others)
        yield from ring_rounds(elements, leaders[:-1], rank)
        yield Round(sends=others)
