"""Groups keeps the process groups of one rank: one per set of ranks and copy, made once and shared by all variants.

torch's tensors remember device meshes, and with them groups, by their shape alone: a group that is destroyed while
another of the same ranks takes its place is still looked up. So none is destroyed before the rank ends.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final
from unittest import mock

import torch.distributed as dist
from torch.distributed import distributed_c10d

# Which of the two ways made a group: those of the launch are counted by all ranks, the others by their members only.
_LAUNCH = -1


@final
class Groups:
    """Process groups by their ranks.

    Args:
        timeout_s: seconds a collective may take; torch's own default is half an hour.
        address: of this rank on the network that its ranks share.
        alpha_s: start-up cost that parbench's own transport is to add to each collective.
    """

    def __init__(self, timeout_s: float, address: str = "127.0.0.1", alpha_s: float = 0.0) -> None:
        self.timeout_s = timeout_s
        self.address, self.alpha_s = address, alpha_s
        self._timeout = datetime.timedelta(seconds=timeout_s)
        self._made: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}

    def first(self, members: int) -> dist.ProcessGroup:
        """Return the group of the first `members` ranks; every rank of the launch calls this, members or not."""
        key = (tuple(range(members)), _LAUNCH)
        if key not in self._made:
            self._made[key] = dist.new_group(list(range(members)), timeout=self._timeout)
        return self._made[key]

    def of(self, ranks: Sequence[int], copy: int = 0) -> dist.ProcessGroup:
        """Return copy number `copy` of the group of these ranks of the launch; only they call this, in one order."""
        key = (tuple(ranks), copy)
        if key not in self._made:
            with _named(f"parbench {list(ranks)} {copy}"):
                self._made[key] = dist.new_group(list(ranks), timeout=self._timeout, use_local_synchronization=True)
        return self._made[key]

    @property
    def all(self) -> list[dist.ProcessGroup]:
        """Every group made so far that this rank is in."""
        # Ranks outside a group are given a mark instead of one.
        return [group for group in self._made.values() if isinstance(group, dist.ProcessGroup)]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Let torch call the next group of some ranks `name`.

    By itself it hashes the ranks with the number of groups this rank is in. Ranks that are in different numbers of
    groups then wait for one another under different names until the timeout.
    """
    with mock.patch.object(distributed_c10d, "_hash_ranks_to_str", return_value=name):
        yield
