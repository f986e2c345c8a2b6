"""A verdict says of one metric whether new is better, worse or the same as old, or that this cannot be told."""

from __future__ import annotations

import math
from typing import Literal

from parbench.difference import LEVEL, Difference, Sample, value_of
from parbench.record import Better
from parbench.resampling import rank_sum_p

Verdict = Literal["better", "worse", "changed", "same", "inconclusive", "not ranked", "missing"]

ALPHA = 1 - LEVEL
# A smaller change is not worth a verdict: Perfherder's least alert is 2 %.
MARGIN = 0.02
# Too few launches show too little of how launches differ; the same program has been seen to differ by 26 % from job to
# job, so that only more than this is told from it.
GROSS = 1.3
# Sums in another order differ by so much; no change of the loss is meant by less (the tolerance of agreement).
ROUNDOFF = 1e-5
_DRIFT = 0.1
_FEWEST_TO_DRIFT = 8
# Counted, not timed: whatever differs has changed.
COUNTED = frozenset({"traffic_bytes_per_step", "wire_bytes_per_step"})


def verdict(
    name: str,
    found: Difference,
    *,
    unit: str,
    better: Better | None,
    p: float | None,
    change: float,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> tuple[Verdict, str]:
    """Return the verdict on one metric, and a sentence about it (empty where nothing is to be said).

    Args:
        name: of the metric.
        found: what separates new from old.
        unit: of the metric.
        better: which direction is an improvement.
        p: `found.p`, corrected for how many comparisons there are.
        change: new - old, in the metric's unit.
        margin: fraction below which a change is none.
        alpha: accepted chance of a false alarm.
    """
    roundoff = found.ratio is not None and abs(found.ratio - 1) < ROUNDOFF
    if found.equal or change == 0 or (roundoff and unit in ("nats", "fraction", "bytes")):
        return "same", ""
    moved = _moved(better, change)
    if found.constant or name in COUNTED:
        return moved, ""
    if found.ratio is None:
        return (
            (moved, "") if p is not None and p <= alpha else ("inconclusive", "a ratio of these values means nothing")
        )
    if found.low is None or found.high is None:
        if unit == "bytes" and _beyond(found.ratio):
            return moved, ""
        return "inconclusive", f"too few measurements for an interval: {_more(found)}"
    if found.apart and _beyond(found.low) and _beyond(found.high):
        return moved, ""
    if p is None:
        few = f"{min(found.launches)} fresh launch{'es' if min(found.launches) > 1 else ''}"
        return "inconclusive", f"{few} cannot show a change under {GROSS - 1:.0%}: {_more(found)}"
    if found.apart and p <= alpha:
        if abs(math.log(found.ratio)) >= math.log1p(margin):
            return moved, ""
        return "same", f"it differs by less than {margin:.2g}, which is not worth a verdict"
    if found.low >= 1 / (1 + margin) and found.high <= 1 + margin:
        return "same", ""
    seen = "" if found.detectable is None else f"as many launches show a change of {found.detectable:.1%} or more"
    return "inconclusive", seen


def drifted(sample: Sample) -> bool:
    """Whether most launches were more than 10 % slower or faster in their second half than in their first."""
    found = [_drifted(sample, k) for k in range(len(sample.launches))]
    return sum(found) > len(found) / 2


def word(unit: str, given: Verdict, better: Better | None) -> str:
    """Return the verdict in the metric's own word: a time is faster, bytes are fewer."""
    if given not in ("better", "worse"):
        return given
    if unit == "s" or unit.endswith("/s"):
        return "faster" if given == "better" else "slower"
    lower = (given == "better") == (better == "lower")
    if unit == "bytes":
        return "fewer" if lower else "more"
    return "lower" if lower else "higher"


def _beyond(ratio: float) -> bool:
    return abs(math.log(ratio)) >= math.log(GROSS)


def _moved(better: Better | None, change: float) -> Verdict:
    if better is None:
        return "changed"
    return "better" if (change < 0) == (better == "lower") else "worse"


def _more(found: Difference) -> str:
    return "measure with --repeats 4 or more" if min(found.launches) < 4 else "measure with more --repeats"


def _drifted(sample: Sample, k: int) -> bool:
    rounds = sample.launches[k]
    if len(rounds) < _FEWEST_TO_DRIFT:
        return False
    half = len(rounds) // 2
    parts = rounds[:half], rounds[-half:]
    first, second = (value_of(part, rate=sample.rate) for part in parts)
    if min(first, second) <= 0 or abs(math.log(second / first)) < math.log1p(_DRIFT):
        return False
    before, after = ([a / b for a, b in part] for part in parts)
    return rank_sum_p(before, after) <= ALPHA
