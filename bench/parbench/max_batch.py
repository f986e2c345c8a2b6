"""The largest batch that fits into memory: doubled until it does not fit, then halved in between, in fresh ranks.

8 fits   16 fits   32 does not   24 fits   28 does not   ->   24      (multiples of the ranks, to a 32nd)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from parbench.errors import UsageError
from parbench.launch.failure import RankLost
from parbench.memory_launch import OpenAlone, alone
from parbench.session import Variant
from parbench.spec import RunSpec

# The search stops when it knows the batch to this part of itself: a trial takes seconds.
_FINE = 32
# A trial is short: what a longer measurement loses to fragmentation is kept free.
_RESERVE = 0.85
# Nobody trains on more samples in a step; the search ends somewhere.
_MOST = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        batch: the largest global batch that fits; None where not even the smallest does.
        because: how that is known.
    """

    batch: int | None
    because: str


def largest(why_not: Callable[[int], str | None], unit: int, first: int, most: int = _MOST) -> Found:
    """Return the largest multiple of `unit` that fits, to a 32nd; what fits must be everything up to some size.

    Args:
        why_not: batch -> why it does not fit, or None where it does.
        unit: batches are multiples of it.
        first: where to begin.
        most: where to stop.
    """
    start = max(1, min(first, most) // unit)
    reason = why_not(start * unit)
    fits, fails = (start, 0) if reason is None else (0, start)
    while not fails and 2 * fits * unit <= most:  # up, until it does not fit
        reason = why_not(2 * fits * unit)
        fits, fails = (2 * fits, 0) if reason is None else (fits, 2 * fits)
    if not fails:
        return Found(batch=fits * unit, because=f"the search ends at {most} samples")
    while fails - fits > max(1, fits // _FINE):
        middle = (fits + fails) // 2
        found = why_not(middle * unit)
        fits, fails, reason = (middle, fails, reason) if found is None else (fits, middle, found)
    return Found(batch=fits * unit or None, because=f"{fails * unit} does not fit: {reason}")


def largest_batch(open_alone: OpenAlone, spec: RunSpec) -> Found:
    """Return the largest global batch of `spec` that can be measured, the check of agreement included.

    Args:
        open_alone: starts ranks as they are timed, and write their logs into a folder.
        spec: what they train.

    Raises:
        RankLost: a rank failed for another reason.
        RanksStuck: nothing moved until the deadline.
    """
    tight = None if spec.memory_gib is None else _RESERVE * spec.memory_gib

    def why_not(batch: int) -> str | None:
        try:
            trial = msgspec.structs.replace(spec, global_batch_size=batch, memory_gib=tight)
            alone(open_alone, trial, _measure_briefly)
        except RankLost as error:
            if error.failure.kind != "oom":
                raise
            return str(error)[:200]
        except UsageError as error:  # the data has no more samples, or the strategy cannot cut so many
            return str(error)[:200]
        return None

    return largest(why_not, spec.world_size * spec.accumulate, spec.global_batch_size or spec.world_size)


def _measure_briefly(variant: Variant) -> None:
    """Do once all that a measurement does: what fits here must fit there."""
    if variant.unsupported is not None:
        raise UsageError(variant.unsupported)
    if variant.spec.parity_steps:
        variant.parity(variant.spec.parity_steps)
    for _ in range(3):
        variant.round(2 * variant.period)
    variant.held_out()
    variant.inspect()
