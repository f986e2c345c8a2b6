"""The communication matrix says how many bytes each rank sends to each other one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parbench.tracing.matching import Side, matched
from parbench.tracing.spans import RankTrace

# Ideal algorithms that pass parts round a ring: each rank sends to the next of its group.
_RINGS = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast"})
_EVENLY = frozenset({"all_to_all", "scatter"})
_TO_ROOT = frozenset({"gather", "reduce"})


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Logical bytes in the traced steps.

    Attributes:
        sent: bytes[from][to], by rank.
        unplaced: bytes of which the trace does not say where they went.
        unknown: collectives of which it does not say how many there were.
    """

    sent: list[list[float]]
    unplaced: float = 0.0
    unknown: int = 0


def sent(traces: Sequence[RankTrace]) -> Matrix:
    """Return who sends how much to whom: messages to their target, collectives as their ideal algorithm does.

    All-reduce, reduce-scatter, all-gather and broadcast pass round a ring in the order of the group; all-to-all and
    scatter send alike to all others; gather and reduce to the root, which is the one that sends nothing.
    """
    ranks = max([one.world_size for one in traces] + [one.rank + 1 for one in traces], default=0)
    table = [[0.0] * ranks for _ in range(ranks)]
    unplaced, unknown = 0.0, 0
    for sides in matched(traces).values():
        for side in sides:
            size = side.one.logical_bytes
            if size is None:
                unknown += 1
                continue
            shares = _shares(side, sides, ranks)
            for target in shares:
                table[side.rank][target] += size / len(shares)
            unplaced += 0.0 if shares else size
    return Matrix(sent=table, unplaced=unplaced, unknown=unknown)


def _shares(side: Side, sides: Sequence[Side], ranks: int) -> list[int]:
    """Return the ranks to which one side sends, each as much."""
    one, rank = side.one, side.rank
    if one.op == "send":
        return [one.peer] if one.peer is not None and 0 <= one.peer < ranks else []
    members = list(one.members) or (list(range(ranks)) if one.group is None or one.axis == "world" else [])
    if rank not in members or len(members) < 2 or not all(0 <= member < ranks for member in members):
        return []
    if one.op in _RINGS:
        return [members[(members.index(rank) + 1) % len(members)]]
    if one.op in _EVENLY:
        return [member for member in members if member != rank]
    if one.op in _TO_ROOT:
        return [other.rank for other in sides if other.one.logical_bytes == 0 and other.rank != rank][:1]
    return []
