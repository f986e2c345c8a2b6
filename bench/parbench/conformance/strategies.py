"""The laws of strategies, judged on the facts that ranks saw; pure functions, one per law."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from parbench.agreement import OWN, agreement
from parbench.conformance.findings import Finding, broken, judged, not_applicable
from parbench.conformance.findings import held as held_law
from parbench.facts import StrategyFacts, TrialFacts

Ranks = Sequence[StrategyFacts]
Law = Callable[[Ranks], list[Finding]]

_CLOSELY = 1e-6
_LEARNT = 0.5


def strategy_laws(ranks: Ranks) -> list[Finding]:
    """Return the findings of every law that needs ranks.

    Args:
        ranks: the facts of every rank that took part, in rank order.
    """
    found = _runs_or_says_why(ranks)
    if ranks[0].unsupported is not None:
        return found
    return found + [finding for law in _LAWS for finding in law(ranks)]


def _runs_or_says_why(ranks: Ranks) -> list[Finding]:
    law = "runs, or says why not"
    reasons = {r.unsupported for r in ranks} | {t.unsupported for r in ranks for t in r.trials}
    for reason in sorted(r for r in reasons if r is not None):
        if len(reason.split()) < 4 or len(reason) > 400:
            return [broken(law, f"the reason {reason[:60]!r} is no sentence; say what is missing and what to do")]
    if len({r.unsupported for r in ranks}) > 1:
        return [broken(law, "some ranks run and others say that they cannot")]
    return [held_law(law, ranks[0].unsupported or "")]


def _agrees(ranks: Ranks) -> list[Finding]:
    """One finding per trial: trained as one process does, as tightly as declared."""
    return [_agrees_in(by_rank, ranks) for by_rank in zip(*(r.trials for r in ranks), strict=True)]


def _agrees_in(by_rank: Sequence[TrialFacts], ranks: Ranks) -> Finding:
    law = f"agrees with one process: {by_rank[0].trial}"
    if by_rank[0].unsupported is not None:
        return not_applicable(law, by_rank[0].unsupported)
    facts = [trial.facts for trial in by_rank]
    found = agreement(ranks[0].agrees, facts, len(facts[0][0].losses), "fp32")
    return judged(law, None if found.passed else found.reason, f"losses differ by at most {found.loss_difference:.1g}")


def _replicas(ranks: Ranks) -> list[Finding]:
    law = "ranks end with the same parameters"
    for by_rank in zip(*(r.trials for r in ranks), strict=True):
        for facts in zip(*(trial.facts for trial in by_rank), strict=True):
            if len({fact.digest for fact in facts}) > 1:
                return [broken(law, f"in trial {by_rank[0].trial!r} with {facts[0].optimizer} they differ bitwise")]
    return [held_law(law)]


def _learns(ranks: Ranks) -> list[Finding]:
    law = "learns what a linear model can"
    losses = _global([r.learning for r in ranks])
    if any(x is None for x in losses):
        return [broken(law, "a loss is missing or not finite")]
    first, last = losses[0] or 0.0, sum(x or 0.0 for x in losses[-5:]) / 5
    detail = f"loss {first:.3g} at first, {last:.3g} after {len(losses)} steps"
    return [judged(law, None if last < _LEARNT * first else f"{detail}; it must fall below half", detail)]


def _repeats(ranks: Ranks) -> list[Finding]:
    law = "same seed, same losses"
    return [_same(law, ranks, [r.first for r in ranks], [r.second for r in ranks])]


def _undisturbed(ranks: Ranks) -> list[Finding]:
    law = "variants alive together do not disturb each other"
    return [_same(law, ranks, [r.first for r in ranks], [r.beside for r in ranks])]


def _same(
    law: str, ranks: Ranks, one: Sequence[Sequence[float | None]], two: Sequence[Sequence[float | None]]
) -> Finding:
    declared = ranks[0].repeats
    if declared == "never":
        return not_applicable(law, "it declares that the same seed need not give the same losses")
    allowed = 0.0 if declared == "bitwise" else _CLOSELY
    for rank, (a, b) in enumerate(zip(one, two, strict=True)):
        for step, (x, y) in enumerate(zip(a, b, strict=True)):
            if (x is None) != (y is None) or (x is not None and y is not None and not abs(x - y) <= allowed):
                return broken(law, f"rank {rank} step {step}: {x} and {y}; it declares {declared!r}")
    return held_law(law, declared)


def _bytes(ranks: Ranks) -> list[Finding]:
    law = "sends the bytes it says"
    if unreadable := sorted({name for r in ranks for name in r.unreadable}):
        return [broken(law, f"the byte counter cannot read {', '.join(unreadable)}")]
    if ranks[0].closed_form is None:
        return [not_applicable(law, "it gives no closed form (Strategy.traffic)")]
    for rank, facts in enumerate(ranks):
        problem = _byte_problem(facts.counted, facts.closed_form or {})
        if problem is not None:
            return [broken(law, f"rank {rank}: {problem}")]
    total = sum(ranks[0].counted.values())
    return [held_law(law, f"{total:.0f} logical bytes per {'step' if ranks[0].period == 1 else 'period'} from rank 0")]


def _holds(ranks: Ranks) -> list[Finding]:
    law = "holds the bytes it says"
    trials = [(rank, trial) for rank, r in enumerate(ranks) for trial in r.trials if trial.unsupported is None]
    if all(trial.memory is None for _, trial in trials):
        return [not_applicable(law, "it gives no closed form (Strategy.memory)")]
    for rank, trial in trials:
        held = next((f.held for f in trial.facts if f.optimizer == OWN), None)
        if held is None:
            return [broken(law, "it gives a closed form, but its trainer does not say what it holds (Trainer.holding)")]
        for kind, seen in held.items():
            said = (trial.memory or {}).get(kind, 0)
            if seen != said:
                return [
                    broken(law, f"rank {rank}, {trial.trial}: {kind} take {seen} bytes, its closed form says {said}")
                ]
    return [held_law(law, _held_words(ranks[0].trials[0]))]


def _held_words(trial: TrialFacts) -> str:
    return ", ".join(f"{kind} {size}" for kind, size in (trial.memory or {}).items()) + " bytes on rank 0"


def _byte_problem(counted: Mapping[str, float], closed: Mapping[str, float]) -> str | None:
    for op in sorted(counted.keys() | closed.keys()):
        seen, said = counted.get(op, 0.0), closed.get(op, 0.0)
        # Both are sums of exact fractions, turned into floats for the way here.
        if not math.isclose(seen, said, rel_tol=1e-9, abs_tol=1e-6):
            return f"{op} sends {seen:.1f} bytes, its closed form says {said:.1f}"
    return None


def _leaves_nothing(ranks: Ranks) -> list[Finding]:
    law = "leaves nothing behind"
    for rank, facts in enumerate(ranks):
        if facts.leftovers:
            return [broken(law, f"rank {rank}: {'; '.join(facts.leftovers[:3])}")]
    return [held_law(law)]


def _closes(ranks: Ranks) -> list[Finding]:
    law = "closes after a failed step"
    for rank, facts in enumerate(ranks):
        if facts.failed_step is not None:
            return [broken(law, f"rank {rank}: {facts.failed_step}")]
    return [held_law(law)]


def _global(by_rank: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean over the ranks that have a loss, step by step."""
    found: list[float | None] = []
    for column in zip(*by_rank, strict=True):
        present = [x for x in column if x is not None]
        mean = math.fsum(present) / len(present) if present else math.nan
        found.append(mean if math.isfinite(mean) else None)
    return found


_LAWS: tuple[Law, ...] = (
    *(_agrees, _replicas, _learns, _repeats, _undisturbed),
    *(_bytes, _holds, _leaves_nothing, _closes),
)
