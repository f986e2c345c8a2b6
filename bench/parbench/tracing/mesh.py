"""A mesh lays ranks out along named axes: where a rank stands in it, and along which axis some ranks lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

WORLD: Final = "world"


def coordinate(mesh: Mapping[str, int], rank: int) -> dict[str, int]:
    """Return axis -> place of a rank along it.

    Args:
        mesh: axis -> ranks along it, outermost first; neighbours lie along the last one.
        rank: in that order.
    """
    found: dict[str, int] = {}
    for axis, size in reversed(list(mesh.items())):
        rank, found[axis] = divmod(rank, size)
    return {axis: found[axis] for axis in mesh}


def axis_of(members: Sequence[int], mesh: Mapping[str, int]) -> str | None:
    """Return the axis along which some ranks lie: "dp"; "dp+tp" where it is several; "world" for all of several.

    None where they are one rank, or not of this mesh.
    """
    size = 1
    for ranks in mesh.values():
        size *= ranks
    if not all(0 <= rank < size for rank in members):
        return None
    places = [coordinate(mesh, rank) for rank in members]
    differing = [axis for axis in mesh if len({place[axis] for place in places}) > 1]
    if len(differing) > 1 and len(members) == size:
        return WORLD
    return "+".join(differing) or None
