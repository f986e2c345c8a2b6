"""Cautions are what a reader of a run must know before believing its numbers: each a code, a sentence and advice."""

from __future__ import annotations

import re

from parbench.cases import Measured
from parbench.record import Environment, Warned


def numerics(m: Measured) -> str:
    """Return "finite", or the first step whose loss was not."""
    bad = [step for r in (*m.warm_up_rounds, *m.rounds) for step in r.nonfinite]
    return f"nonfinite at step {min(bad)}" if bad else "finite"


def cautions(m: Measured, environment: Environment) -> list[Warned]:
    """Return everything to be said of a case that has ended, timing gates left out.

    Args:
        m: what was measured.
        environment: where.
    """
    found = [_nonfinite(m), _disagrees(m), _oversubscribed(m, environment), _unsteady(m), _compiled(m), _teardown(m)]
    return [warning for warning in found if warning is not None]


def _nonfinite(m: Measured) -> Warned | None:
    if numerics(m) == "finite":
        return None
    return Warned(
        code="nonfinite_loss",
        message=f"the loss was not finite ({numerics(m)}): the throughput is kept, the row is not ranked",
        advice="lower the learning rate, or look for what the strategy does to gradients",
    )


def _disagrees(m: Measured) -> Warned | None:
    if m.agreement is None or m.agreement.passed is not False:
        return None
    return Warned(
        code="disagrees",
        message=f"it does not train as one process does ({m.agreement.reason}): the row is not ranked",
        advice="compare by loss over time, or mend the strategy",
    )


def _oversubscribed(m: Measured, environment: Environment) -> Warned | None:
    cores = environment.facts.get("cores")
    # Ranks of its launch that it does not use wait for a command, which costs no core.
    wanted = m.case.spec.world_size * m.case.spec.threads
    on_cpu = "device" not in m.chosen or m.chosen["device"].value == "cpu"
    if not isinstance(cores, int) or not on_cpu or wanted <= cores:
        return None
    return Warned(
        code="oversubscribed",
        message=f"{m.case.spec.world_size} ranks of {m.case.spec.threads} threads share {cores} cores: they take turns",
        advice="use fewer ranks or threads; compare only what a link, not a core, limits",
    )


def _unsteady(m: Measured) -> Warned | None:
    if m.warm_up is None or m.warm_up.steady is not False:
        return None
    return Warned(
        code="warm_up_not_steady",
        message=f"steps were still getting faster after {m.warm_up.steps} warm-up steps",
        advice="quieten the machine, or ask for more warm-up (--warmup N) and longer rounds (--set steps_per_round=N)",
    )


def _compiled(m: Measured) -> Warned | None:
    rounds = sum(r.compile_s > 0 for r in m.rounds)
    if not rounds:
        return None
    return Warned(
        code="compiled_in_rounds",
        message=f"something was compiled in {rounds} of {len(m.rounds)} timed rounds: their time is in them",
        advice="look for what changes shape from step to step; leave --compile out where it cannot settle",
    )


def _teardown(m: Measured) -> Warned | None:
    if m.teardown is None:
        return None
    return Warned(
        code="teardown_failed",
        message=f"the ranks did not end cleanly, after everything was measured: {_one_line(m.teardown)}",
        advice="see the logs in log/",
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
