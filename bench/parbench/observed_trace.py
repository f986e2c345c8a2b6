"""What traced steps showed, as a record keeps it: where each rank's went, and what the ranks sent each other."""

from __future__ import annotations

import msgspec


class RankTraced(msgspec.Struct, frozen=True, kw_only=True):
    """Where the traced steps of one rank went.

    Attributes:
        rank: which.
        coordinate: its place in the mesh of ranks, axis -> index.
        step_s: a traced step, the mean.
        parts: name -> seconds of it; they sum to it.
        unattributed_s: the share of "other" that no rule covers.
        overlap: communication during which the rank computes / all communication; None where there is none.
        bytes_per_step: op -> logical bytes sent in a traced step; None where one was not counted.
        collectives: in the traced steps.
        candidates: events that might have been communication.
        recognised: how many of them were.
        notes: what could not be read, in sentences.
    """

    rank: int
    coordinate: dict[str, int] = {}
    step_s: float = 0.0
    parts: dict[str, float] = {}
    unattributed_s: float = 0.0
    overlap: float | None = None
    bytes_per_step: dict[str, float] | None = None
    collectives: int = 0
    candidates: int = 0
    recognised: int = 0
    notes: tuple[str, ...] = ()


class CollectiveKind(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one operation, axis, group size, type and length in the traced steps of all ranks.

    Attributes:
        op: the operation; "message" for a send and its recv.
        axis: of the mesh; None where it is not known.
        ranks: in the group.
        dtype: of the buffer.
        shown_as: the backend's names for it.
        buffer_bytes: of the whole buffer of one rank.
        count: how many there were.
        logical_bytes: what all ranks sent in them.
        wire_bytes: the same by the backend's own algorithm.
        timed: of how many the time of every rank was seen.
        transfer_s: median of the shortest time in flight on any rank: without waiting for others.
        waiting_s: mean of waiting for the last rank to come.
        algbw_bytes_per_s: bytes of the buffer over the time of transfer.
        busbw_bytes_per_s: the same by the factor of the operation and the size of the group.
    """

    op: str
    axis: str | None = None
    ranks: int = 0
    dtype: str | None = None
    shown_as: tuple[str, ...] = ()
    buffer_bytes: float | None = None
    count: int = 0
    logical_bytes: float | None = None
    wire_bytes: float | None = None
    timed: int = 0
    transfer_s: float | None = None
    waiting_s: float | None = None
    algbw_bytes_per_s: float | None = None
    busbw_bytes_per_s: float | None = None


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank keeps time in the traced steps.

    Attributes:
        rank: which.
        collectives: that it shares with others.
        last: to how many of them it comes last.
        waited_s: for others, in all of them.
        delayed_s: by how much it comes after the last but one, in all to which it comes last.
    """

    rank: int
    collectives: int = 0
    last: int = 0
    waited_s: float = 0.0
    delayed_s: float = 0.0


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """What the traced steps of all ranks came to.

    Attributes:
        steps: that were traced.
        slowest: the rank whose traced step takes longest; the record's breakdown is its own.
        ranks: every rank.
        collectives: by kind, those that send most first.
        keeping: how ranks keep time, the one that delays others most first.
        sent: logical bytes of the traced steps, from rank -> to rank.
        uncertainty_s: by how much the ranks' clocks may be apart; None where that is not known.
        files: file in the record's folder -> bytes.
        shortened: why fewer steps were traced than were asked for.
        reason: why there is no trace.
    """

    steps: int = 0
    slowest: int = 0
    ranks: tuple[RankTraced, ...] = ()
    collectives: tuple[CollectiveKind, ...] = ()
    keeping: tuple[Keeping, ...] = ()
    sent: tuple[tuple[float, ...], ...] = ()
    uncertainty_s: float | None = None
    files: dict[str, int] = {}
    shortened: str | None = None
    reason: str | None = None
