"""A ring plan says which parts of a buffer one rank sends and receives, in order, for one collective.

rank 0    sends parts 3, 2, 1    receives 2, 1, 0      reduce-scatter among 4 ranks: part c starts at rank c+1,
rank 1    sends parts 0, 3, 2    receives 3, 2, 1      collects one term per hop and gets the last one at rank c;
...                                                    what is received is what is sent next

So part c is ((x[c+1] + x[c+2]) + ...) + x[c] (ranks modulo n), on every machine and in every run. All-gather then
passes the sums around as they are, and all ranks hold the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

Op = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"]
OPS: tuple[Op, ...] = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A part that arrives: `add` says whether this rank's own term is added to it."""

    part: int
    add: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RingPlan:
    """What one rank does in one collective.

    Attributes:
        outgoing: parts sent to the next rank, in order.
        incoming: parts received from the previous rank, in order.
        ready: leading parts of `outgoing` that need nothing to arrive; after them `incoming` is passed on, in order.
    """

    outgoing: tuple[int, ...]
    incoming: tuple[Incoming, ...]
    ready: int


@lru_cache(maxsize=1024)
def bounds(numel: int, parts: int) -> tuple[int, ...]:
    """Return the `parts` + 1 borders of the parts of `numel` elements; the first ones may be one longer."""
    each, longer = divmod(numel, parts)
    return (0, *accumulate(each + (k < longer) for k in range(parts)))


@lru_cache(maxsize=1024)
def plan(op: Op, rank: int, world_size: int, source: int = 0) -> RingPlan:
    """Return what `rank` of `world_size` does; `source` is the rank whose buffer a broadcast spreads."""
    hops = range(world_size - 1)
    if op == "broadcast":
        return _broadcast(rank, world_size, source)
    adding = [(rank - 1 - k) % world_size for k in hops] if op != "all_gather" else []
    passing = [(rank - k) % world_size for k in hops] if op != "reduce_scatter" else []
    incoming = [Incoming((rank - 2 - k) % world_size, True) for k in hops if adding]
    incoming += [Incoming((rank - 1 - k) % world_size, False) for k in hops if passing]
    return RingPlan(outgoing=(*adding, *passing), incoming=tuple(incoming), ready=min(1, world_size - 1))


def _broadcast(rank: int, world_size: int, source: int) -> RingPlan:
    # One part, the whole buffer, runs once around from the source to the rank before it.
    place = (rank - source) % world_size
    return RingPlan(
        outgoing=(0,) if place < world_size - 1 else (),
        incoming=(Incoming(0, False),) if place > 0 else (),
        ready=1 if place == 0 and world_size > 1 else 0,
    )


def payload_bytes(op: Op, rank: int, world_size: int, numel: int, itemsize: int, source: int = 0) -> int:
    """Return the bytes that `rank` sends, headers left out."""
    borders = bounds(numel, 1 if op == "broadcast" else world_size)
    parts = plan(op, rank, world_size, source).outgoing
    return itemsize * sum(borders[part + 1] - borders[part] for part in parts)
