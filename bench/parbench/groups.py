"""Groups keeps the process groups of one rank: one per set of ranks and copy, made once and shared by all variants.

torch's tensors remember device meshes, and with them groups, by their shape alone: a group that is destroyed while
another of the same ranks takes its place is still looked up. So none is destroyed before the rank ends.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import final

import torch.distributed as dist


@final
class Groups:
    """Process groups by their ranks.

    Args:
        timeout_s: seconds a collective may take; torch's own default is half an hour.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout = datetime.timedelta(seconds=timeout_s)
        self._made: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}

    def first(self, members: int) -> dist.ProcessGroup:
        """Return the group of the first `members` ranks; every rank of the launch calls this, members or not."""
        key = (tuple(range(members)), 0)
        if key not in self._made:
            self._made[key] = dist.new_group(list(range(members)), timeout=self._timeout)
        return self._made[key]

    def of(self, ranks: Sequence[int], copy: int = 0) -> dist.ProcessGroup:
        """Return copy number `copy` of the group of these ranks of the launch; only they call this, in one order."""
        key = (tuple(ranks), copy)
        if key not in self._made:
            self._made[key] = dist.new_group(list(ranks), timeout=self._timeout, use_local_synchronization=True)
        return self._made[key]

    @property
    def all(self) -> list[dist.ProcessGroup]:
        """Every group made so far that this rank is in."""
        # Ranks outside a group are given a mark instead of one.
        return [group for group in self._made.values() if isinstance(group, dist.ProcessGroup)]
