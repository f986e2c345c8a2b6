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
        ranks: those of which there is a trace, and those they send to.
        sent: bytes[from][to], in the order of `ranks`.
        unplaced: bytes of which the trace does not say where they went.
        unknown: collectives of which it does not say how many there were.
    """

    ranks: list[int]
    sent: list[list[float]]
    unplaced: float = 0.0
    unknown: int = 0


def sent(traces: Sequence[RankTrace]) -> Matrix:
    """Return who sends how much to whom: messages to their target, collectives as their ideal algorithm does.

    All-reduce, reduce-scatter, all-gather and broadcast pass round a ring in the order of the group; all-to-all and
    scatter send alike to all others; gather and reduce to the root, which is the one that sends nothing.
    """
    world_size = max([one.world_size for one in traces], default=1)
    sizes: dict[tuple[int, int], float] = {}
    unplaced, unknown = 0.0, 0
    for sides in matched(traces).sides.values():
        for side in sides:
            size = side.one.logical_bytes
            if size is None:
                unknown += 1
                continue
            targets = _targets(side, sides, world_size)
            for target in targets:
                pair = (side.rank, target)
                sizes[pair] = sizes.get(pair, 0.0) + size / len(targets)
            unplaced += 0.0 if targets else size
    ranks = sorted({one.rank for one in traces} | {rank for pair in sizes for rank in pair})
    table = [[sizes.get((a, b), 0.0) for b in ranks] for a in ranks]
    return Matrix(ranks=ranks, sent=table, unplaced=unplaced, unknown=unknown)


def _targets(side: Side, sides: Sequence[Side], world_size: int) -> list[int]:
    """Return the ranks to which one side sends, each as much."""
    one, rank = side.one, side.rank
    if one.op == "send":
        return [one.peer] if one.peer is not None and 0 <= one.peer < world_size else []
    members = list(one.members) or (list(range(world_size)) if one.group is None or one.axis == "world" else [])
    if rank not in members or len(members) < 2 or not all(0 <= member < world_size for member in members):
        return []
    if one.op in _RINGS:
        return [members[(members.index(rank) + 1) % len(members)]]
    if one.op in _EVENLY:
        return [member for member in members if member != rank]
    if one.op in _TO_ROOT:
        return [other.rank for other in sides if other.one.logical_bytes == 0 and other.rank != rank][:1]
    return []
