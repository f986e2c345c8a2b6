"""A Grid says where a rank of several pipelines side by side stands.

replica 0   0   1   2   a pipeline: each rank holds other stages
replica 1   3   4   5
            |
            peers: the same stages, other samples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parbench.api import Batch, RankContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where a rank stands.

    Attributes:
        replicas: pipelines side by side.
        ranks: of each pipeline.
        replica: which pipeline this rank is in.
        place: which rank of it.
        pipeline: the ranks of its pipeline, by place.
        peers: the ranks that hold the same stages, by replica.
    """

    replicas: int
    ranks: int
    replica: int
    place: int
    pipeline: Sequence[int]
    peers: Sequence[int]

    @staticmethod
    def of(ctx: RankContext, replicas: int) -> Grid:
        """Return where the rank of `ctx` stands where ranks of a pipeline are neighbours."""
        ranks = ctx.world_size // replicas
        replica, place = divmod(ctx.rank, ranks)
        return Grid(
            replicas=replicas,
            ranks=ranks,
            replica=replica,
            place=place,
            pipeline=range(replica * ranks, (replica + 1) * ranks),
            peers=range(place, ctx.world_size, ranks),
        )

    def share(self, batch: Batch) -> Batch:
        """Return the part of a global batch that this rank's pipeline works on."""
        return batch.share(self.replica, self.replicas)
