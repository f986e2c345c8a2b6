"""Gates are what timings must pass to be believed: parts that add up, clocks that run forwards, steps that last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median

from parbench.record import Metric, Round, WarmUp, Warned

# Warnings after which timing metrics are not believed.
SUSPECT_CODES = frozenset(
    {
        "timing_does_not_add_up",
        "below_resolution",
        "samples_do_not_match_time",
        "tokens_do_not_match",
        "compiled_in_rounds",
    }
)

# How far sums of steps may be from the wall time around them: a fraction, and what reading clocks costs.
_SUM_TOLERANCE = 0.02
_CLOCK_S = 20e-6
# Below this, what is timed is as much the harness as the step (N12).
_SHORTEST_STEP_S = 50e-6
# A first step is worth a word from here (N6), as hyperfine's "first run was significantly slower".
_SLOW_FACTOR, _SLOW_FLOOR_S = 5.0, 0.2


def usable(rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds that can be measured by: time ran forwards, and there were steps and samples in them (N5)."""
    return [r for r in rounds if math.isfinite(r.wall_s) and r.wall_s > 0 and r.steps > 0 and r.samples > 0]


def self_check(
    rounds: Sequence[Round],
    step_seconds: Sequence[Sequence[float]],
    *,
    warm_up: WarmUp | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> list[Warned]:
    """Check one launch's timings against each other.

    Args:
        rounds: the measured rounds, in order.
        step_seconds: per rank, the seconds of every measured step, in order over all rounds; empty where steps were not
            timed.
        warm_up: what was left out before them; its first step is judged where it is given.
        metrics: the timing metrics computed from `rounds`; their identities are judged where they are given.

    Returns:
        What a reader must know. After a code in `SUSPECT_CODES` the timing metrics are to be marked (`mark_suspect`).
    """
    good = usable(rounds)
    found = [
        _backwards(rounds, good, step_seconds),
        _slowest_is_wall(good),
        _sums(rounds, step_seconds),
        _too_short(good),
        _slow_first_step(good, warm_up),
        _samples_times_time(good, metrics or {}),
    ]
    return [warning for warning in found if warning is not None]


def _backwards(
    rounds: Sequence[Round], good: Sequence[Round], step_seconds: Sequence[Sequence[float]]
) -> Warned | None:
    bad_rounds = len(rounds) - len(good)
    bad_steps = sum(1 for steps in step_seconds for s in steps if not s >= 0)
    if not bad_rounds and not bad_steps:
        return None
    return Warned(
        code="negative_interval",
        message=f"{bad_rounds} of {len(rounds)} rounds and {bad_steps} step times were negative, zero or not a number; "
        "those rounds were dropped",
        advice="durations must come from a monotonic clock; check the clock source of this machine",
    )


def _slowest_is_wall(good: Sequence[Round]) -> Warned | None:
    for r in good:
        if r.rank_wall_s and not _near(max(r.rank_wall_s), r.wall_s, r.wall_s):
            return _does_not_add_up(
                f"round {r.index}: the slowest rank took {max(r.rank_wall_s):.6g} s, the round {r.wall_s:.6g} s"
            )
    return None


def _sums(rounds: Sequence[Round], step_seconds: Sequence[Sequence[float]]) -> Warned | None:
    if not step_seconds:
        return None
    ends = list(accumulate((r.steps for r in rounds), initial=0))
    for rank, steps in enumerate(step_seconds):
        if len(steps) != ends[-1]:
            return _does_not_add_up(f"rank {rank} timed {len(steps)} steps, but the rounds hold {ends[-1]}")
    wrong = [
        problem
        for r, (start, stop) in zip(rounds, pairwise(ends), strict=True)
        if usable([r]) and (problem := _sum_of_round(r, [steps[start:stop] for steps in step_seconds]))
    ]
    if not wrong:
        return None
    return _does_not_add_up(
        f"{wrong[0]} ({len(wrong)} of {len(rounds)} rounds are off by more than {_SUM_TOLERANCE:.0%})"
    )


def _sum_of_round(r: Round, steps: Sequence[Sequence[float]]) -> str | None:
    """Return what does not add up in one round.

    A round knows only the longest drain over ranks, so a rank's rest lies between nothing and that, and
    some rank needed all of it.
    """
    walls = r.rank_wall_s if len(r.rank_wall_s) == len(steps) else (r.wall_s,) * len(steps)
    rests = [wall - math.fsum(part) for wall, part in zip(walls, steps, strict=True)]
    allowed = _SUM_TOLERANCE * r.wall_s + _CLOCK_S
    for rank, rest in enumerate(rests):
        if not -allowed <= rest <= r.drain_s + allowed:
            return (
                f"round {r.index}, rank {rank}: steps sum to {walls[rank] - rest:.6g} s and drain to "
                f"{r.drain_s:.6g} s, but the round took {walls[rank]:.6g} s"
            )
    if max(rests) < r.drain_s - allowed:
        return (
            f"round {r.index}: drain is said to take {r.drain_s:.6g} s, but at most {max(rests):.6g} s is left for it"
        )
    return None


def _too_short(good: Sequence[Round]) -> Warned | None:
    shortest = median(r.wall_s / r.steps for r in good) if good else math.inf
    if shortest >= _SHORTEST_STEP_S:
        return None
    return Warned(
        code="below_resolution",
        message=f"a step takes {shortest * 1e6:.3g} µs; below {_SHORTEST_STEP_S * 1e6:.0f} µs the harness is timed too",
        advice="make the step longer: a larger --size or --global-batch-size",
    )


def _slow_first_step(good: Sequence[Round], warm_up: WarmUp | None) -> Warned | None:
    if warm_up is None or not good:
        return None
    typical, first = median(r.wall_s / r.steps for r in good), warm_up.first_step_s
    if not (first > _SLOW_FACTOR * typical and first > _SLOW_FLOOR_S):
        return None
    return Warned(
        code="slow_first_step",
        message=f"the first step took {first:.3g} s, {first / typical:.0f} times the median step ({typical:.3g} s)",
        advice="it was left out of the measured rounds; compilation, allocation or connection set-up is likely. "
        "Count it separately where jobs are short, and look for other work on the machine where that is unexpected",
    )


def _samples_times_time(good: Sequence[Round], metrics: Mapping[str, Metric]) -> Warned | None:
    rate = metrics.get("samples_per_s")
    if rate is None or rate.value is None or not good:
        return None
    seconds, samples = math.fsum(r.wall_s for r in good), sum(r.samples for r in good)
    if math.isclose(rate.value * seconds, samples, rel_tol=1e-3):
        return None
    return Warned(
        code="samples_do_not_match_time",
        message=f"{rate.value:.6g} samples/s for {seconds:.6g} s make {rate.value * seconds:.6g} samples, but "
        f"{samples} were trained on",
        advice="this is a defect of the measurement: please report it with the record",
    )


def _does_not_add_up(what: str) -> Warned:
    return Warned(
        code="timing_does_not_add_up",
        message=what,
        advice="step times are not synchronised with the work, or are counted twice: do not use these timings",
    )


def _near(a: float, b: float, whole: float) -> bool:
    return abs(a - b) <= _SUM_TOLERANCE * whole + _CLOCK_S
