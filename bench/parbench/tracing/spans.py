"""A RankTrace is what one rank was seen to do: spans of time, and collectives with what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

# What a span means for the step time. "operator" is a tensor operator or a kernel; what encloses it says for what.
Kind = Literal[
    "step",  # one training step of the traced pass
    "data",  # getting the next batch
    "forward",
    "backward",
    "optimizer",
    "compression",  # encoding and decoding what is exchanged
    "wait",  # the rank waits for a collective that it has issued
    "slowed",  # the rank sleeps because somebody asked for a slow one
    "operator",
    "collective",  # as the backend carried it out, on a thread or stream of its own
    "other",
]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time on one thread or stream of one rank.

    Attributes:
        name: as the profiler or the annotation says it.
        kind: what it means for the step time.
        start_ns: on the rank's own clock.
        end_ns: on the same clock, not before `start_ns`.
        thread: thread, or stream of a device, on which it lies; spans of one thread nest and never cross.
        device: whether it lies on a stream of an accelerator.
        args: what else was noted.
    """

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    thread: str
    device: bool = False
    args: Mapping[str, str | int | float] = {}


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, or one message of a pair, as one rank took part in it.

    Attributes:
        op: "all_reduce", "send", ... as `parbench.counting` names them.
        number: its place in the order in which this rank issued what it issued, from 0.
        step: the traced step in which it was issued, from 0; None where that is not known.
        group: name of the process group; None where the trace does not say.
        members: the world ranks of the group, in its order; empty where the trace does not say.
        axis: the axis of the device mesh that the group is, such as "dp" or "tp"; "world" for all ranks; None unknown.
        peer: the other rank (of the world) of a send or recv.
        dtype: of the buffer.
        logical_bytes: what the ideal algorithm sends from this rank; None where it is not known.
        wire_bytes: what this backend's algorithm sends from this rank; None where it is not known.
        issued_ns: when the rank issued it, on its own clock.
        start_ns: when the backend began with it; None where that was not seen.
        end_ns: when it was complete on this rank; None where that was not seen.
        shown_as: the name under which the backend showed it, such as "gloo:all_reduce" for a reduce_scatter.
    """

    op: str
    number: int
    step: int | None = None
    group: str | None = None
    members: tuple[int, ...] = ()
    axis: str | None = None
    peer: int | None = None
    dtype: str | None = None
    logical_bytes: float | None = None
    wire_bytes: float | None = None
    issued_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    shown_as: str | None = None


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank was seen to do in the traced steps.

    Attributes:
        rank: of the world.
        world_size: ranks there are.
        backend: "gloo" or "nccl".
        host: which machine, by a name that means nothing outside; ranks of one host share a clock.
        coordinate: the rank's place in its device mesh, axis -> index; empty where there is none.
        spans: in order of their start.
        collectives: in order of issue.
        candidates: events that might have been communication.
        recognised: how many of them were.
        notes: what could not be read, in sentences.
    """

    rank: int
    world_size: int
    backend: str
    host: str = ""
    coordinate: Mapping[str, int] = {}
    spans: tuple[Span, ...] = ()
    collectives: tuple[Collective, ...] = ()
    candidates: int = 0
    recognised: int = 0
    notes: tuple[str, ...] = ()
