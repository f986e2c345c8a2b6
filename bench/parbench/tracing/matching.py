"""Matching finds the sides of one collective: the entries of all ranks that took part in it.

rank 0   all_reduce 0    all_reduce 1    send to 1
            |                |               |
rank 1   all_reduce 0    all_reduce 1    recv from 0
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from parbench.tracing.spans import Collective, RankTrace

# A key names one collective of all ranks: its group, what it is, the step, and the how many-th of those it is.
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


def keys(trace: RankTrace) -> list[Key]:
    """Return the key of each of a rank's collectives, in order: the same on all ranks that take part."""
    counted: Counter[tuple[str, str, int]] = Counter()
    found = []
    for one in trace.collectives:
        if one.op in _PAIRS:
            # The nth message from a to b is the nth that b gets from a.
            ends = (trace.rank, one.peer) if one.op == "send" else (one.peer, trace.rank)
            kind = (f"{ends[0]} to {ends[1]}", "message", -1 if one.step is None else one.step)
        else:
            group = str(list(one.members)) if one.members else one.group or ""
            kind = (group, one.op, -1 if one.step is None else one.step)
        found.append((*kind, counted[kind]))
        counted[kind] += 1
    return found


def matched(traces: Iterable[RankTrace]) -> dict[Key, list[Side]]:
    """Return each collective with its sides, by rank; one that only a single rank was seen to take part in too."""
    found: dict[Key, list[Side]] = defaultdict(list)
    for trace in sorted(traces, key=lambda one: one.rank):
        for key, one in zip(keys(trace), trace.collectives, strict=True):
            found[key].append(Side(rank=trace.rank, one=one))
    return dict(found)


def expected(sides: Sequence[Side], world_size: int) -> int:
    """Return how many sides a collective has, those that were not seen included."""
    one = sides[0].one
    if one.op in _PAIRS:
        return 2
    return len(one.members) or (world_size if one.group is None or one.axis == "world" else len(sides))


def arrivals(matches: Mapping[Key, Sequence[Side]], world_size: int) -> dict[Key, int]:
    """Return when the last member of each collective was ready for it; only those of which all sides were seen."""
    found = {}
    for key, sides in matches.items():
        times = [side.arrived_ns for side in sides]
        if len(sides) >= expected(sides, world_size) and None not in times:
            found[key] = max(time for time in times if time is not None)
    return found


def delivered(one: Collective, sides: Sequence[Side]) -> Collective:
    """Return one side without what comes after its message was delivered.

    gloo's send lasts until somebody waits for it, which may be long after its bytes have left; its recv has them.
    """
    if one.op != "send" or one.start_ns is None or one.end_ns is None:
        return one
    received = [side.one.end_ns for side in sides if side.one.op == "recv" and side.one.end_ns is not None]
    end = max(one.start_ns, min([one.end_ns, *received]))
    return msgspec.structs.replace(one, end_ns=end)
