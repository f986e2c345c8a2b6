"""Cautions are what a reader of a run must know before believing its numbers: each a code, a sentence and advice."""

from __future__ import annotations

import re

from parbench.cases import Measured
from parbench.neighbours import core_count, neighbour_caution
from parbench.record import Environment, Warned
from parbench.slowing import said

# What meters may cost per step, all together, on an empty loop.
_MOST_COST_S = 250e-6


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
    found = [
        _nonfinite(m),
        _disagrees(m),
        _oversubscribed(m, environment),
        neighbour_caution(m.neighbour_cores, core_count()),
        _tokens(m),
        _costly(m),
        _unsteady(m),
        _compiled(m),
        _teardown(m),
        _slowed(m),
    ]
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


def _tokens(m: Measured) -> Warned | None:
    """Tokens that are counted are those that were fed: the targets of the batches, counted one by one."""
    if m.unit != "tokens" or not m.rounds:
        return None
    counted = sum(sum(r.ranks[0].samples) for r in m.rounds) * m.units_per_sample
    fed = sum(r.ranks[0].positions for r in m.rounds)
    if counted == fed:
        return None
    return Warned(
        code="tokens_do_not_match",
        message=f"{counted} tokens were counted, but the batches held {fed} targets",
        advice="the workload's units_per_sample is not what its batches hold: mend it",
    )


def _costly(m: Measured) -> Warned | None:
    costs = [one.cost_s for one in m.inspected if one.cost_s is not None]
    if not costs or max(costs) <= _MOST_COST_S:
        return None
    return Warned(
        code="costly_probes",
        message=f"the timed loop alone takes {max(costs) * 1e6:.0f} µs per step, more than {_MOST_COST_S * 1e6:.0f} µs",
        advice="leave out probes (--probe), or measure again when the machine is quiet",
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


def _slowed(m: Measured) -> Warned | None:
    spec = m.case.spec
    how = said(spec.rank_speed, spec.straggler, spec.world_size)
    if how is None:
        return None
    return Warned(
        code="slowed_on_purpose",
        message=f"ranks were slowed on purpose ({how}): times are not what this machine takes",
        advice="compare with runs that are slowed alike; leave both flags out to measure this machine",
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
