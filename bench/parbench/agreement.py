"""Agreement is the verdict on parity: whether what ranks saw is as close to one process as the strategy claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from parbench.facts import ParityFacts
from parbench.record import Agreement, Agrees
from parbench.spec import Precision

SGD = "SGD with momentum"
OWN = "the workload's own"

# Largest accepted difference per claim: (loss, relative to the loss; parameters, relative to how far they moved).
# Floating-point addition in another order moves a float32 loss by about 1e-6; Adam divides by the size of a gradient,
# which magnifies that where gradients are small, hence the wider second number there.
_TOLERANCE: Mapping[tuple[Agrees, str], tuple[float, float]] = {
    ("exactly", SGD): (0.0, 0.0),
    ("exactly", OWN): (0.0, 0.0),
    ("closely", SGD): (1e-5, 1e-3),
    ("closely", OWN): (1e-4, 5e-2),
}
# Values are rounded before the order of additions matters: to 8 bits (bfloat16) or 11 (half precision).
_ROUNDOFF: Mapping[Precision, float] = {"bf16": 2.0**-8, "fp16": 2.0**-11}


def agreement(
    declared: Agrees,
    facts: Sequence[Sequence[ParityFacts]],
    steps: int,
    precision: Precision,
    *,
    compiled: bool = False,
) -> Agreement:
    """Judge the facts of all ranks.

    Args:
        declared: what the strategy claims.
        facts: per member rank, rank 0 (the judge) first, the facts of each optimizer.
        steps: steps that were compared.
        precision: arithmetic of forward and backward.
        compiled: whether a compiler may have fused operations, which the one process does not: bits may then differ.
    """
    judged_as: Agrees = "closely" if declared == "exactly" and compiled else declared
    loss_difference, parameter_difference = 0.0, 0.0
    reasons: list[str] = []
    for by_rank in zip(*facts, strict=True):
        judge = by_rank[0]
        # A loss that is not finite on one rank must not vanish in the mean of the others.
        if problem := next((fact.problem for fact in by_rank if fact.problem), None):
            reasons.append(f"with {judge.optimizer}: {problem}")
            continue
        means = [_mean(column) for column in zip(*(fact.losses for fact in by_rank), strict=True)]
        if any(x is None for x in means):
            reasons.append(f"with {judge.optimizer}: a loss is missing or not finite")
            continue
        if declared in ("exactly", "closely") and len({fact.digest for fact in by_rank}) > 1:
            reasons.append(f"with {judge.optimizer}: ranks end with different parameters")
        differences = [abs(x - r) for x, r in zip(means, judge.reference, strict=True) if x is not None]
        loss_difference = max(loss_difference, *differences)
        parameter_difference = max(parameter_difference, judge.parameter_difference or 0.0)
        reasons += _reasons(judged_as, judge, differences, precision)
    return Agreement(
        declared=declared,
        passed=not reasons,
        loss_difference=loss_difference,
        parameter_difference=parameter_difference,
        steps=steps,
        reason="; ".join(reasons) or None,
    )


def _reasons(declared: Agrees, judge: ParityFacts, differences: Sequence[float], precision: Precision) -> list[str]:
    allowed = _TOLERANCE.get((declared, judge.optimizer))
    if allowed is None:  # "on average" and "differently" are compared by loss over time, not step by step
        return []
    if precision in _ROUNDOFF and declared == "closely":
        loss, update = 5 * _ROUNDOFF[precision], 50 * _ROUNDOFF[precision]
        allowed = (max(loss, allowed[0]), max(update, allowed[1]))
    loss_limit, update_limit = allowed
    relative = max(d / max(1.0, abs(r)) for d, r in zip(differences, judge.reference, strict=True))
    update_error = judge.update_error or 0.0
    reasons = []
    if relative > loss_limit:
        reasons.append(f"with {judge.optimizer}: losses differ by {relative:.2g} of the loss, {loss_limit:.2g} allowed")
    if update_error > update_limit:
        reasons.append(
            f"with {judge.optimizer}: updates differ by {update_error:.2g} of their size, {update_limit:.2g} allowed"
        )
    return reasons


def _mean(values: Sequence[float | None]) -> float | None:
    present = [x for x in values if x is not None]
    return math.fsum(present) / len(present) if present else None
