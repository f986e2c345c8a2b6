"""Closed forms of models that are averaged once a period, and the limits of a period.

P parameters of the whole model, b bytes of one, n ranks, k steps of a period.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from parbench.api import Job, RankContext, Textbook, all_reduced, data_parallel
from parbench_strategies.relaxed._averaging import drifting_bytes, momenta_bytes

# More would not average once in any run.
MOST_STEPS: Final = 100_000


def checked_period(period: int) -> int:
    """Return `period` if it can be one.

    Raises:
        ValueError: it cannot.
    """
    if not 1 <= period <= MOST_STEPS:
        raise ValueError(f"period must be from 1 (an average after every step) to {MOST_STEPS}, got {period}")
    return period


def averaged_bytes(job: Job, ctx: RankContext, period: int, *, momenta: bool = False) -> Mapping[str, Fraction]:
    """Return what one rank sends per step of a period that averages the model, and momenta or not, once."""
    if ctx.world_size == 1:
        return {}
    whole = drifting_bytes(job) + (momenta_bytes(job) if momenta else 0)
    return {"all_reduce": all_reduced(whole, ctx.world_size) / period}


def once_a_period(job: Job, ctx: RankContext, period: int) -> Textbook:
    """Return the textbook form of replicas that average their weights every k steps: 2(n-1)/n P b / k."""
    every_step = data_parallel(job, ctx)
    if period == 1:
        return every_step
    return Textbook(formula="2(n-1)/n P b / k", sent_bytes=every_step.sent_bytes / period)
