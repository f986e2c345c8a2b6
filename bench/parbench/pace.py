"""Pace decides how many steps a round of a case has, and when its warm-up is over; functions of what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from parbench.cases import Measured
from parbench.record import WarmUp
from parbench.session import RoundSamples

MOST_WARM_UP_ROUNDS = 10
MOST_WARM_UP_S = 30.0

_STEADY_ROUNDS = 2
_STEADY_WITHIN = 0.05


def warm_up_steps(m: Measured) -> int:
    """Return the steps of a warm-up round."""
    if m.case.spec.warmup is not None:
        return m.case.spec.warmup
    return whole_periods(min(m.case.spec.steps_per_round, m.case.spec.steps), m.period)


def round_steps(m: Measured) -> int:
    """Return the steps of the next measured round."""
    left = m.case.spec.steps - m.steps_done
    return whole_periods(min(m.case.spec.steps_per_round, left), m.period)


def whole_periods(steps: int, period: int) -> int:
    """Return `steps` rounded up to a multiple of `period`."""
    return math.ceil(steps / period) * period


def steady(rounds: Sequence[RoundSamples]) -> bool:
    """Return whether the last rounds brought no new best time: what still falls is warming up, what varies is noise."""
    times = [r.wall_s / r.steps for r in rounds]
    earlier, last = times[:-_STEADY_ROUNDS], times[-_STEADY_ROUNDS:]
    return bool(earlier) and min(last) >= (1 - _STEADY_WITHIN) * min(earlier)


def warm_up_of(m: Measured) -> WarmUp:
    """Return what is recorded of a warm-up that is over."""
    rounds = m.warm_up_rounds
    fixed = m.case.spec.warmup is not None
    rule = (
        f"{m.case.spec.warmup} steps, as asked"
        if fixed
        else f"rounds until the last {_STEADY_ROUNDS} of every case bring no time {_STEADY_WITHIN:.0%} under the "
        f"best before, at most {MOST_WARM_UP_ROUNDS} rounds or {MOST_WARM_UP_S:.0f} s each"
    )
    return WarmUp(
        steps=sum(r.steps for r in rounds),
        wall_s=sum(r.wall_s for r in rounds),
        first_step_s=max(r.seconds[0] for r in rounds[0].ranks),
        steady=None if fixed else steady(rounds),
        rule=rule,
    )


def prolong_warm_up(m: Measured, done: RoundSamples) -> None:
    """Count a round that was to be measured as warm-up: something was compiled in it."""
    m.warm_up_rounds.append(done)
    if m.warm_up is not None:
        m.warm_up = msgspec.structs.replace(
            m.warm_up, steps=m.warm_up.steps + done.steps, wall_s=m.warm_up.wall_s + done.wall_s
        )
