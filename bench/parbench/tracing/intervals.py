"""An interval is a stretch of time [start, end) in ns; sets of them are sorted, disjoint lists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same time as sorted, disjoint intervals; empty ones go."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def intersection(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Return the time that is in both; each is sorted and disjoint."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def difference(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Return the time that is in `one` and not in `other`; each is sorted and disjoint."""
    found, j = [], 0
    for start, end in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        at, k = start, j
        while k < len(other) and other[k][0] < end:
            if at < other[k][0]:
                found.append((at, other[k][0]))
            at = max(at, other[k][1])
            k += 1
        if at < end:
            found.append((at, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    """Return how long they are together; they are disjoint."""
    return sum(end - start for start, end in intervals)


def holding(intervals: Sequence[Interval], time_ns: int) -> Interval | None:
    """Return the one of sorted, disjoint intervals that holds a moment, or None."""
    k = bisect_right(intervals, time_ns, key=lambda one: one[0]) - 1
    return intervals[k] if k >= 0 and time_ns < intervals[k][1] else None
