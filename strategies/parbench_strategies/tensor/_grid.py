"""A Grid places ranks: neighbours form a tensor group, and one of each group forms a row of replicas.

         place 0   place 1
replica 0   0         1      tensor group: cuts layers, works on the same samples
replica 1   2         3
            |
            the same part of the layers: averages gradients
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from parbench.api import Comm, RankContext


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where one rank is.

    Attributes:
        degree: ranks of a tensor group.
        replicas: tensor groups; degree x replicas = world size.
        place: of this rank in its tensor group.
        replica: which group that is.
    """

    degree: int
    replicas: int
    place: int
    replica: int

    @staticmethod
    def of(ctx: RankContext, degree: int) -> Grid:
        """Return the place of the rank of `ctx`."""
        replica, place = divmod(ctx.rank, degree)
        return Grid(degree=degree, replicas=ctx.world_size // degree, place=place, replica=replica)

    def tensor_group(self, comm: Comm) -> Comm:
        """Return the collectives among the ranks that share out this rank's layers."""
        return comm.subset(range(self.replica * self.degree, (self.replica + 1) * self.degree))

    def replica_group(self, comm: Comm) -> Comm:
        """Return the collectives among the ranks that have the same part as this one."""
        return comm.subset(range(self.place, comm.world_size, self.degree))

    def bounds(self, length: int) -> tuple[int, int]:
        """Return start and stop of this rank's part of a dim; parts differ by at most one."""
        return self.place * length // self.degree, (self.place + 1) * length // self.degree
