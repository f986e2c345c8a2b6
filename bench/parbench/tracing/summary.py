"""A summary of traces: what ranks did together, in numbers; the same for parbench's own and foreign ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from parbench.tracing import bandwidth, breakdown, clocks, matrix, overlap, skew
from parbench.tracing.matching import Matches, matched
from parbench.tracing.spans import RankTrace

# Above this share of a step the rules have missed something worth knowing.
_UNATTRIBUTED = 0.1
_MOST_NAMED = 8
# Collectives within a machine take less.
_UNCERTAIN_NS = 1_000_000


class OfRank(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did.

    Attributes:
        rank: of the world.
        coordinate: its place in the mesh.
        steps: traced.
        step_s: a mean.
        breakdown: part -> seconds per step; None where there is nothing to break down.
        unattributed_s: share of "other" that no rule covers.
        overlap: fraction of communication that computation hides; None where there is no communication.
        collectives: that it took part in, in all steps.
        recognised: events that were taken for communication, of `candidates` that might have been.
        candidates: see there.
        notes: what could not be read of its trace.
    """

    rank: int
    coordinate: Mapping[str, int]
    steps: int
    step_s: float | None
    breakdown: dict[str, float] | None
    unattributed_s: float | None
    overlap: float | None
    collectives: int
    recognised: int
    candidates: int
    notes: tuple[str, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks did.

    Attributes:
        backend: of the ranks.
        world_size: ranks of the job; there may be fewer traces.
        ranks: those of which there is a trace.
        slowest: the rank whose steps took longest; None where none has steps.
        communication: collectives by kind.
        stragglers: how each rank keeps time, the one that delays others most first.
        matrix: who sends whom how much, in all traced steps.
        uncertainty_ns: what is left of differences between clocks; None where they could not be aligned.
        clocks: how they were aligned, in a sentence.
        notes: what a reader must know, in sentences.
    """

    backend: str
    world_size: int
    ranks: tuple[OfRank, ...]
    slowest: int | None
    communication: tuple[bandwidth.Row, ...]
    stragglers: tuple[skew.Straggler, ...]
    matrix: matrix.Matrix
    uncertainty_ns: int | None
    clocks: str
    notes: tuple[str, ...]


def summary(found: clocks.Aligned) -> Summary:
    """Return what aligned traces say."""
    traces = found.traces
    matches = matched(traces)
    ranks = tuple(_of_rank(one, matches) for one in traces)
    timed = [one for one in ranks if one.step_s is not None]
    world_size = max(one.world_size for one in traces)
    return Summary(
        backend=", ".join(dict.fromkeys(one.backend for one in traces if one.backend)),
        world_size=world_size,
        ranks=ranks,
        slowest=max(timed, key=lambda one: one.step_s or 0.0).rank if timed else None,
        communication=tuple(bandwidth.rows(traces)),
        stragglers=tuple(skew.stragglers(skew.waiting(traces))),
        matrix=matrix.sent(traces),
        uncertainty_ns=found.uncertainty_ns,
        clocks=found.how,
        notes=tuple(_notes(ranks, world_size, found.uncertainty_ns)),
    )


def _of_rank(trace: RankTrace, matches: Matches) -> OfRank:
    parts = breakdown.of(trace, matches=matches)
    return OfRank(
        rank=trace.rank,
        coordinate=trace.coordinate,
        steps=parts.steps if parts else 0,
        step_s=parts.step_s if parts else None,
        breakdown=parts.parts if parts else None,
        unattributed_s=parts.unattributed_s if parts else None,
        overlap=overlap.fraction(trace, matches=matches),
        collectives=len(trace.collectives),
        recognised=trace.recognised,
        candidates=trace.candidates,
        notes=trace.notes,
    )


def _notes(ranks: Sequence[OfRank], world_size: int, uncertainty_ns: int | None) -> Iterable[str]:
    missing = world_size - len(ranks)
    if missing > 0:
        yield f"{missing} of {world_size} ranks have no trace here: waiting for them cannot be told from communication"
    if uncertainty_ns is not None and uncertainty_ns > _UNCERTAIN_NS:
        yield f"clocks are uncertain by {uncertainty_ns / 1e6:.3g} ms: shorter waiting and transfers mean nothing"
    loose = [one.rank for one in ranks if one.step_s and (one.unattributed_s or 0.0) > _UNATTRIBUTED * one.step_s]
    if loose:
        yield f"more than {_UNATTRIBUTED:.0%} of a step is not attributed on {_named(loose)}"
    for sentence in dict.fromkeys(note for one in ranks for note in one.notes):
        yield f"{_named([one.rank for one in ranks if sentence in one.notes])}: {sentence}"


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if ranks[1:] else ''} {', '.join(map(str, ranks[:_MOST_NAMED]))}{more}"
