"""Matching finds the sides of one collective: the entries of all ranks that took part in it.

rank 0   all_reduce 0    all_reduce 1    send to 1
            |                |               |
rank 1   all_reduce 0    all_reduce 1    recv from 0
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from parbench.tracing.spans import Collective, RankTrace

# A key names one collective of all ranks: its group, what it is, the step (-1: of all), and the how many-th it is.
Key = tuple[str, str, int, int]
_PAIRS = frozenset({"send", "recv"})


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part in a collective."""

    rank: int
    one: Collective

    @property
    def arrived_ns(self) -> int | None:
        """When this rank was ready for it: when it issued it, or, where that is not known, when it began."""
        return self.one.start_ns if self.one.issued_ns is None else self.one.issued_ns


class Matches(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of all ranks.

    Attributes:
        sides: key -> the parts that ranks had in it, by rank.
        keys: rank -> the keys of its collectives, in their order.
    """

    sides: dict[Key, list[Side]]
    keys: dict[int, list[Key]]


def matched(traces: Iterable[RankTrace]) -> Matches:
    """Return each collective with its sides, by rank; one that only a single rank was seen to take part in too.

    Members issue the collectives of a group in one order, or they would hang: the nth of one rank is the nth of all.
    Where ranks were not seen to issue equally many, they are counted anew in each step, so that what is missing in one
    disturbs no other.
    """
    ordered = sorted(traces, key=lambda one: one.rank)
    kinds = {trace.rank: [_kind(trace.rank, one) for one in trace.collectives] for trace in ordered}
    counts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for found in kinds.values():
        for kind, count in Counter(found).items():
            counts[kind].add(count)
    keys: dict[int, list[Key]] = {}
    sides: dict[Key, list[Side]] = defaultdict(list)
    for trace in ordered:
        seen: Counter[tuple[str, str, int]] = Counter()
        keys[trace.rank] = []
        for kind, one in zip(kinds[trace.rank], trace.collectives, strict=True):
            place = (*kind, -1 if one.step is None or len(counts[kind]) == 1 else one.step)
            key = (*place, seen[place])
            seen[place] += 1
            keys[trace.rank].append(key)
            sides[key].append(Side(rank=trace.rank, one=one))
    return Matches(sides=dict(sides), keys=keys)


def _kind(rank: int, one: Collective) -> tuple[str, str]:
    """Return what the sides of a collective have in common: its group and what it is."""
    if one.op in _PAIRS:
        # The nth message from a to b is the nth that b gets from a.
        ends = (rank, one.peer) if one.op == "send" else (one.peer, rank)
        return f"{ends[0]} to {ends[1]}", "message"
    return str(list(one.members)) if one.members else one.group or "", one.op


def expected(sides: Sequence[Side], world_size: int) -> int:
    """Return how many sides a collective has, those that were not seen included."""
    one = sides[0].one
    if one.op in _PAIRS:
        return 2
    return len(one.members) or (world_size if one.group is None or one.axis == "world" else len(sides))


def arrival(sides: Sequence[Side], world_size: int) -> int | None:
    """Return when the last member of a collective was ready for it; None where not all sides were seen."""
    times = [side.arrived_ns for side in sides]
    if len(sides) < expected(sides, world_size) or None in times:
        return None
    return max(time for time in times if time is not None)


def delivered(one: Collective, sides: Sequence[Side]) -> Collective:
    """Return one side without what comes after its message was delivered.

    gloo's send lasts until somebody waits for it, which may be long after its bytes have left; its recv has them.
    """
    if one.op != "send" or one.start_ns is None or one.end_ns is None:
        return one
    received = [side.one.end_ns for side in sides if side.one.op == "recv" and side.one.end_ns is not None]
    end = max(one.start_ns, min([one.end_ns, *received]))
    return msgspec.structs.replace(one, end_ns=end)
