"""A power plan says which rank reads which boards: each board of each host once, whatever ranks share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parbench.environment import host_name_hash

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one rank is.

    Attributes:
        host: of which physical machine; ranks in several containers of one share it.
        board: bus address of the board it computes on; None on a CPU, or where the board is not known.
        part: whether it has a part (MIG) of the board only.
        reason: why no power can be read for this rank; None where it can.
    """

    host: str
    board: str | None = None
    part: bool = False
    reason: str | None = None


def host_here() -> str:
    """Return what tells physical machines apart without naming them."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return host_name_hash()


def readers(places: Sequence[Place]) -> Mapping[int, tuple[Place, ...]]:
    """Return rank -> what it reads: the first rank of each host reads every board that its ranks use, once.

    On CPUs what is read is the host itself.
    """
    found: dict[int, dict[str | None, Place]] = {}
    first: dict[str, int] = {}
    for rank, place in enumerate(places):
        boards = found.setdefault(first.setdefault(place.host, rank), {})
        # A board of which one rank has a part and another all is a part: its power is not one rank's.
        if place.board not in boards or place.part:
            boards[place.board] = place
    return {rank: tuple(boards.values()) for rank, boards in found.items()}
