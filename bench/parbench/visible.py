"""Which boards a process sees: CUDA_VISIBLE_DEVICES names them by number, by UUID or by part, in any order.

CUDA numbers the boards it sees from 0 in the order of that list; NVML numbers all of the host by PCI bus. What joins
the two is the bus address or the UUID, never the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU of this host, as NVML knows it.

    Attributes:
        index: NVML's number.
        uuid: "GPU-...".
        bus_id: address on the PCI bus, such as "00000000:3B:00.0".
        name: its model.
        parts: UUIDs of the MIG parts it is cut into ("MIG-..."); empty where it is whole.
    """

    index: int
    uuid: str
    bus_id: str
    name: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A device as CUDA numbers it: the board behind it, and whether it is a part of it only."""

    board: Board
    part: bool = False


def seen(boards: Sequence[Board], visible: str | None, order: str | None = None) -> list[Seen] | str:
    """Return the devices of a process in CUDA's order, or a sentence saying why they are not known.

    Args:
        boards: all of the host.
        visible: CUDA_VISIBLE_DEVICES; None where it is not set, empty where nothing may be used.
        order: CUDA_DEVICE_ORDER; CUDA's default numbers the fastest board 0.
    """
    by_bus = sorted(boards, key=lambda one: one.bus_id)
    numbers = visible is None or any(_is_number(word) for word in visible.split(","))
    if numbers and order != "PCI_BUS_ID" and len({one.name for one in boards}) > 1:
        return (
            "the boards differ and CUDA numbers the fastest first: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name boards by "
            "UUID in CUDA_VISIBLE_DEVICES"
        )
    if visible is None:
        return [_whole(one) for one in by_bus]
    found: list[Seen] = []
    for word in map(str.strip, visible.split(",")):
        one = _named(by_bus, word)
        if one is None:  # as CUDA does: what follows a name that nothing has is not seen
            break
        found.append(one)
    return found


def _is_number(word: str) -> bool:
    return word.strip().isdecimal()


def _whole(board: Board) -> Seen:
    # A board that is cut gives a process its first part.
    return Seen(board=board, part=bool(board.parts))


def _named(by_bus: Sequence[Board], word: str) -> Seen | None:
    if _is_number(word):
        return _whole(by_bus[int(word)]) if int(word) < len(by_bus) else None
    if word.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        return _only([Seen(board=one, part=True) for one in by_bus if one.uuid == word[4:].partition("/")[0]])
    if word.startswith("MIG-"):
        return _only([Seen(board=one, part=True) for one in by_bus for part in one.parts if part.startswith(word)])
    if word.startswith("GPU-"):
        return _only([_whole(one) for one in by_bus if one.uuid.startswith(word)])
    return None


def _only(found: Sequence[Seen]) -> Seen | None:
    """Return the one that is meant; an abbreviation that several fit means none."""
    return found[0] if len(found) == 1 else None
