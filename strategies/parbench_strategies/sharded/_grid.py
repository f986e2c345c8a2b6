"""A Grid lays ranks out in rows: a row shares one copy of the model, a column holds the same shard of every copy.

    replicas 2, shards 3      0 1 2
                              3 4 5

Numbers are ranks of the variant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from parbench.api import RankContext

# Copy 0 of the first ranks' group is the launch's: all ranks make it together, members or not, as these are not made.
_COPY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How many copies of the model there are, and over how many ranks each is cut.

    Attributes:
        replicas: r, rows.
        shards: s, ranks in a row.
    """

    replicas: int
    shards: int

    def row(self, rank: int) -> list[int]:
        """Return the ranks that share a copy with `rank`."""
        first = rank // self.shards * self.shards
        return list(range(first, first + self.shards))

    def column(self, rank: int) -> list[int]:
        """Return the ranks that hold the same shard as `rank`."""
        return list(range(rank % self.shards, self.replicas * self.shards, self.shards))

    def mesh(self, ctx: RankContext) -> DeviceMesh:
        """Return the mesh of the variant's ranks: (shard,), or (replicate, shard) where there are several copies.

        Raises:
            ValueError: a copy is not cut, so that there is nothing to mesh.
        """
        if self.shards == 1 or ctx.comm.group is None:
            raise ValueError("one rank holds the whole model: there are no shards")
        if self.replicas == 1:
            return DeviceMesh.from_group(ctx.comm.group, ctx.device.type)
        # The same order on all ranks: a group is made when its last member asks for it.
        row, column = (ctx.comm.subset(ranks, _COPY) for ranks in (self.row(ctx.rank), self.column(ctx.rank)))
        everyone = torch.tensor(dist.get_process_group_ranks(ctx.comm.group)).view(self.replicas, self.shards)
        return DeviceMesh.from_group(
            [comm.group for comm in (column, row) if comm.group is not None],
            ctx.device.type,
            mesh=everyone,
            mesh_dim_names=("replicate", "shard"),
        )
