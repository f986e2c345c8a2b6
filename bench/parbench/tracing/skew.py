"""Skew is how far apart ranks come to a collective: who comes early waits, and what is left is the transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from parbench.tracing.matching import Key, Side, delivered, expected, matched
from parbench.tracing.spans import Collective, RankTrace


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, as all its members took part in it.

    Attributes:
        key: which.
        one: as the lowest rank saw it.
        transfer_s: the shortest time that it was in flight on any rank: on the last to come.
        waiting_s: rank -> how long before the last it was there.
        last: the rank that came last.
    """

    key: Key
    one: Collective
    transfer_s: float
    waiting_s: dict[int, float]
    last: int


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank keeps time.

    Attributes:
        rank: which.
        collectives: that it shared with others.
        last: how many of them it came to last.
        waited_s: for others, in all of them.
        delayed_s: by how much it came after the last but one, in all to which it came last.
    """

    rank: int
    collectives: int
    last: int
    waited_s: float
    delayed_s: float


def waiting(traces: Sequence[RankTrace]) -> list[Waiting]:
    """Return all collectives of which every side was seen, in order of their start; the traces share a clock."""
    world_size = max((one.world_size for one in traces), default=1)
    found = []
    for key, sides in matched(traces).sides.items():
        if len(sides) < 2 or len(sides) < expected(sides, world_size):
            continue
        times = _times(sides)
        if times is None:
            continue
        last = max(times, key=lambda rank: (times[rank][0], -rank))
        found.append(
            Waiting(
                key=key,
                one=sides[0].one,
                transfer_s=min(end - start for start, end in times.values()) / 1e9,
                waiting_s={rank: (times[last][0] - start) / 1e9 for rank, (start, _) in times.items()},
                last=last,
            )
        )
    return sorted(found, key=lambda one: one.one.start_ns or 0)


def stragglers(found: Iterable[Waiting]) -> list[Straggler]:
    """Return how each rank keeps time, the one that delays others most first."""
    count: Counter[int] = Counter()
    last: Counter[int] = Counter()
    waited: Counter[int] = Counter()
    delayed: Counter[int] = Counter()
    for one in found:
        for rank, seconds in one.waiting_s.items():
            count[rank] += 1
            waited[rank] += round(seconds * 1e9)
        last[one.last] += 1
        delayed[one.last] += round(min(s for rank, s in one.waiting_s.items() if rank != one.last) * 1e9)
    rows = [
        Straggler(rank=rank, collectives=n, last=last[rank], waited_s=waited[rank] / 1e9, delayed_s=delayed[rank] / 1e9)
        for rank, n in count.items()
    ]
    return sorted(rows, key=lambda one: (-one.delayed_s, -one.last, one.rank))


def _times(sides: Sequence[Side]) -> dict[int, tuple[int, int]] | None:
    """Return rank -> when it began and ended; None where one of that was not seen."""
    found = {}
    for side in sides:
        one = delivered(side.one, sides)
        if one.start_ns is None or one.end_ns is None:
            return None
        found[side.rank] = (one.start_ns, one.end_ns)
    return found
