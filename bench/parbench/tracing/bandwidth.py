"""Bandwidth of collectives as nccl-tests define it: by size, operation and group, waiting for others left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from parbench.network.collectives import bus_factor
from parbench.tracing.ideal import buffer_bytes
from parbench.tracing.matching import Key, Side, expected, matched
from parbench.tracing.skew import Waiting, waiting
from parbench.tracing.spans import RankTrace


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind: same operation, axis, group size and bytes.

    Attributes:
        op: the operation; "message" for a send and its recv.
        axis: of the mesh; None where it is not known.
        ranks: in the group.
        dtype: of the buffer.
        shown_as: the backend's names for it.
        buffer_bytes: of the whole buffer of one rank; None where it is not known.
        count: how many there were, each once, however many ranks took part.
        logical_bytes: what all ranks sent in them; None where it is not known of one.
        wire_bytes: the same by the backend's own algorithm.
        timed: of how many the time of every rank was seen.
        transfer_s: median of the shortest time that it was in flight on any rank; None where most had arrived before
            anybody asked for them, which hides how long they took.
        waiting_s: mean, over collectives and ranks, of waiting for the last rank to come.
        algbw_bytes_per_s: buffer_bytes / transfer_s.
        busbw_bytes_per_s: algbw by the factor of the operation and the size of the group.
    """

    op: str
    axis: str | None
    ranks: int
    dtype: str | None
    shown_as: tuple[str, ...]
    buffer_bytes: float | None
    count: int
    logical_bytes: float | None
    wire_bytes: float | None
    timed: int
    transfer_s: float | None
    waiting_s: float | None
    algbw_bytes_per_s: float | None
    busbw_bytes_per_s: float | None


class _Sort(NamedTuple):
    """What collectives of one row have in common."""

    op: str
    axis: str | None
    ranks: int
    dtype: str | None
    buffer_bytes: float | None


def rows(traces: Sequence[RankTrace]) -> list[Row]:
    """Return the collectives of all ranks by kind, those that send most first; the traces share a clock."""
    world_size = max((one.world_size for one in traces), default=1)
    timed = {one.key: one for one in waiting(traces)}
    kinds: dict[_Sort, list[tuple[Key, list[Side]]]] = defaultdict(list)
    for key, sides in matched(traces).sides.items():
        one = sides[0].one
        ranks = 2 if key[1] == "message" else expected(sides, world_size)
        op = "message" if key[1] == "message" else one.op
        sort = _Sort(op, one.axis, ranks, one.dtype, _buffer(sides, ranks))
        kinds[sort].append((key, sides))
    found = [_row(kind, entries, timed) for kind, entries in kinds.items()]
    return sorted(found, key=lambda row: (-(row.logical_bytes or 0.0), row.op, -row.count))


def _buffer(sides: Sequence[Side], ranks: int) -> float | None:
    if ranks < 2:
        return None
    sizes = [
        size
        for side in sides
        if side.one.logical_bytes is not None
        and (size := buffer_bytes(side.one.op, side.one.logical_bytes, ranks)) is not None
    ]
    return max(sizes, default=None)


def _row(sort: _Sort, entries: Sequence[tuple[Key, Sequence[Side]]], timed: Mapping[Key, Waiting]) -> Row:
    every = [side.one for _, sides in entries for side in sides]
    seen = [timed[key] for key, _ in entries if key in timed]
    transfer = (median(one.transfer_s for one in seen) if seen else 0.0) or None
    waits = [seconds for one in seen for seconds in one.waiting_s.values()]
    algbw = sort.buffer_bytes / transfer if sort.buffer_bytes is not None and transfer is not None else None
    factor = float(bus_factor(sort.op, sort.ranks)) if sort.ranks > 1 else None
    return Row(
        op=sort.op,
        axis=sort.axis,
        ranks=sort.ranks,
        dtype=sort.dtype,
        shown_as=tuple(sorted({one.shown_as for one in every if one.shown_as})),
        buffer_bytes=sort.buffer_bytes,
        count=len(entries),
        logical_bytes=_total([one.logical_bytes for one in every]),
        wire_bytes=_total([one.wire_bytes for one in every]),
        timed=len(seen),
        transfer_s=transfer,
        waiting_s=sum(waits) / len(waits) if waits else None,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * factor if algbw is not None and factor is not None else None,
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
