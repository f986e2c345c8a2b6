"""The overlap fraction says how much of the time in which something is in flight the rank computes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from parbench.tracing.intervals import intersection, length, union
from parbench.tracing.matching import Matches, delivered, matched
from parbench.tracing.phases import computing, in_steps
from parbench.tracing.spans import RankTrace


def fraction(trace: RankTrace, others: Iterable[RankTrace] = (), *, matches: Matches | None = None) -> float | None:
    """Return |communication and computation| / |communication| in the traced steps; None where there is none of it.

    Whether a collective waits for other ranks or moves bytes, it is in flight; a message is until it was delivered.

    Args:
        trace: of the rank.
        others: the traces of all ranks on the same clock, with or without this one: they know what was delivered.
        matches: their collectives, if they are matched already.
    """
    known = matched({one.rank: one for one in (*others, trace)}.values()) if matches is None else matches
    every = [
        delivered(one, known.sides[key]) for key, one in zip(known.keys[trace.rank], trace.collectives, strict=True)
    ]
    flying = union((one.start_ns, one.end_ns) for one in every if one.start_ns is not None and one.end_ns is not None)
    both = alone = 0
    for step in in_steps(trace):
        inside = intersection(flying, [step.window])
        alone += length(inside)
        both += length(intersection(inside, computing(step)))
    return both / alone if alone else None
