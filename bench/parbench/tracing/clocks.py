"""Clocks of ranks are brought together: ranks of one host share one, others are aligned on what ends at once.

No rank leaves an all-reduce before the last one has come to it, and all leave within a short time of one another:

    rank 0   |--------all_reduce--------|
    rank 1             |---all_reduce---|          the ends coincide, whenever each began
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from parbench.tracing.matching import Side, expected, matched
from parbench.tracing.spans import Collective, RankTrace, Span

# Those in which every rank needs something of every other one, so that nobody can end before all have begun.
_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})


class Aligned(msgspec.Struct, frozen=True, kw_only=True):
    """Traces on one clock, that of the first rank's host.

    Attributes:
        traces: by rank.
        uncertainty_ns: what is left of differences: nine of ten collectives end within it on all ranks where hosts were
            aligned on them; on one host, by how much its clock contradicts itself (a rank that leaves a collective
            before another one comes to it); None where hosts share no collective, so that they could not be aligned.
        offsets_ns: rank -> what was added to its times.
        how: in a sentence.
    """

    traces: tuple[RankTrace, ...]
    uncertainty_ns: int | None
    offsets_ns: dict[int, int]
    how: str


def aligned(traces: Iterable[RankTrace]) -> Aligned:
    """Return the traces on one clock; ranks whose host is not known have each a clock of their own."""
    ordered = sorted(traces, key=lambda one: one.rank)
    clock_of = {one.rank: one.host or f"rank {one.rank}" for one in ordered}
    clocks = list(dict.fromkeys(clock_of.values()))
    together = _together(ordered)
    if len(clocks) == 1:
        contradiction = max((_contradiction(sides) for sides in together), default=0)
        offsets = dict.fromkeys(clock_of, 0)
        return Aligned(
            traces=tuple(ordered), uncertainty_ns=contradiction, offsets_ns=offsets, how="all ranks share one clock"
        )
    found = _offsets(clocks, clock_of, together)
    offsets = {rank: found.get(clock, 0) for rank, clock in clock_of.items()}
    alone = [clock for clock in clocks if clock not in found]
    moved = tuple(shifted(one, offsets[one.rank]) for one in ordered)
    if alone:
        ranks = [rank for rank, clock in clock_of.items() if clock in alone]
        how = f"ranks {ranks} share no collective with rank {ordered[0].rank}: their clocks are as they were"
        return Aligned(traces=moved, uncertainty_ns=None, offsets_ns=offsets, how=how)
    spreads = sorted(_spread(sides) for sides in _together(moved) if len({clock_of[s.rank] for s in sides}) > 1)
    count = len(spreads)
    return Aligned(
        traces=moved,
        uncertainty_ns=spreads[(9 * count - 1) // 10],
        offsets_ns=offsets,
        how=f"{len(clocks)} clocks aligned on the ends of {count} collectives",
    )


def shifted(trace: RankTrace, by_ns: int) -> RankTrace:
    """Return a trace with all its times later by so much."""
    if not by_ns:
        return trace
    return msgspec.structs.replace(
        trace,
        spans=tuple(_later(span, by_ns) for span in trace.spans),
        collectives=tuple(_all_later(one, by_ns) for one in trace.collectives),
    )


def _later(span: Span, by_ns: int) -> Span:
    return msgspec.structs.replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns)


def _all_later(one: Collective, by_ns: int) -> Collective:
    times = {name: getattr(one, name) for name in ("issued_ns", "start_ns", "end_ns")}
    return msgspec.structs.replace(one, **{name: time + by_ns for name, time in times.items() if time is not None})


def _together(traces: Sequence[RankTrace]) -> list[list[Side]]:
    """Return the collectives of which all sides were seen to begin and to end, and which all ranks leave at once."""
    world_size = max((one.world_size for one in traces), default=1)
    return [
        sides
        for sides in matched(traces).sides.values()
        if sides[0].one.op in _TOGETHER
        and 1 < len(sides) == expected(sides, world_size)
        and all(side.one.start_ns is not None and side.one.end_ns is not None for side in sides)
    ]


def _offsets(clocks: Sequence[str], clock_of: Mapping[int, str], together: Sequence[Sequence[Side]]) -> dict[str, int]:
    """Return clock -> what to add to it, for those that are connected with the first one by collectives."""
    differences: dict[tuple[str, str], list[int]] = defaultdict(list)
    for sides in together:
        # Of several ranks on one clock the last to leave counts.
        ends: dict[str, int] = {}
        for side in sides:
            clock, end = clock_of[side.rank], side.one.end_ns or 0
            ends[clock] = max(ends.get(clock, end), end)
        for a, end_a in ends.items():
            for b, end_b in ends.items():
                if a != b:
                    differences[a, b].append(end_a - end_b)
    found = {clocks[0]: 0}
    while True:
        # Always through the pair of which most is known.
        open_ = {pair: seen for pair, seen in differences.items() if pair[0] in found and pair[1] not in found}
        if not open_:
            return found
        a, b = max(open_, key=lambda pair: len(open_[pair]))
        found[b] = found[a] + round(median(open_[a, b]))


def _spread(sides: Sequence[Side]) -> int:
    ends = [side.one.end_ns or 0 for side in sides]
    return max(ends) - min(ends)


def _contradiction(sides: Sequence[Side]) -> int:
    starts, ends = [side.one.start_ns or 0 for side in sides], [side.one.end_ns or 0 for side in sides]
    return max(0, max(starts) - min(ends))
