"""What can go wrong in a ring: a neighbour that is gone, one that stands still, or one that does something else."""

from __future__ import annotations

from parbench.errors import RankFailed, Stuck


class PeerGone(RankFailed):
    """A rank closed its connections, or its process or host is gone; `rank` says which."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class PeerStalled(Stuck):
    """A rank did not move a byte until the deadline; `rank` says which."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class RingMismatch(RankFailed):
    """Two ranks issued different collectives."""


class RingClosed(RuntimeError):
    """The ring was closed, here, before the collective was complete."""


# The launcher knows by the words "connection closed by peer" and "timed out waiting" that a rank only followed.
def gone(rank: int, address: str, doing: str) -> PeerGone:
    """Say that a rank is gone."""
    return PeerGone(f"ring: rank {rank} at {address} is gone during {doing}: connection closed by peer", rank)


def stalled(rank: int, address: str, doing: str, timeout_s: float) -> PeerStalled:
    """Say that a rank has not moved a byte for `timeout_s`."""
    return PeerStalled(
        f"ring: timed out waiting for rank {rank} at {address} during {doing}: no byte in {timeout_s:g} s", rank
    )
