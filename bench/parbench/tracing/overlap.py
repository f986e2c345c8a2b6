"""The overlap fraction says how much of the time in which something is in flight the rank computes meanwhile."""

from __future__ import annotations

from parbench.tracing.intervals import intersection, length, union
from parbench.tracing.phases import computing, steps
from parbench.tracing.spans import RankTrace


def fraction(trace: RankTrace) -> float | None:
    """Return |communication and computation| / |communication| in the traced steps; None where there is none of it.

    Whether a collective waits for other ranks or moves bytes, it is in flight.
    """
    flying = union(
        (one.start_ns, one.end_ns) for one in trace.collectives if one.start_ns is not None and one.end_ns is not None
    )
    both = alone = 0
    for step in steps(trace):
        window = (step.start_ns, step.end_ns)
        inside = intersection(flying, [window])
        alone += length(inside)
        both += length(intersection(inside, computing(trace, step.thread, window)))
    return both / alone if alone else None
