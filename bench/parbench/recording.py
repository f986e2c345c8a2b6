"""Recording turns what was measured of a case into its record and its raw samples; nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from parbench.accounts import account_cautions, account_metrics, held_of, precision_of, traffic_of
from parbench.cases import Measured
from parbench.cautions import cautions, numerics
from parbench.compression_account import compression_cautions, compression_metrics
from parbench.launch.messages import StepsDone
from parbench.memory_account import memory_cautions, memory_metrics, memory_of
from parbench.metrics import judged, self_check, timing_metrics
from parbench.network.telling import link_cautions, link_facts
from parbench.powered import power_cautions, power_metrics
from parbench.probed import probed
from parbench.record import Agreement, Better, Chosen, Environment, Metric, Round, RunRecord, Warned
from parbench.session import RoundSamples
from parbench.steadiness import steadiness
from parbench.store import Column
from parbench.trace_account import breakdown_of, trace_cautions, trace_metrics
from parbench.utilisation import flops_of, utilisation

Steps = dict[str, list[int | float | str | None]]


def record_of(
    m: Measured,
    *,
    run_id: str,
    suite: str,
    started_at: str,
    environment: Environment,
    resolved_suite: dict[str, object],
    sweep: str,
    resumed_from: str | None,
) -> RunRecord:
    """Return the record of a case that has ended, whichever way.

    Args:
        m: what was measured.
        run_id: id of the record.
        suite: name of the suite.
        started_at: UTC time of the launch, as a label.
        environment: machine and software.
        resolved_suite: what repeats the sweep.
        sweep: id of the sweep it belongs to.
        resumed_from: id of the interrupted run it takes up.
    """
    rounds = [_round(k, r) for k, r in enumerate(m.rounds)]
    metrics: dict[str, Metric] = {}
    timing: Mapping[str, Metric] = {}
    warnings: list[Warned] = []
    if m.status in ("complete", "interrupted"):
        timing = timing_metrics(
            [rounds], unit=m.unit, units_per_sample=m.units_per_sample, world_size=m.case.spec.world_size
        )
        warnings = self_check(rounds, _seconds_by_rank(m.rounds), warm_up=m.warm_up, metrics=timing)
        warnings += steadiness(rounds, _seconds_by_rank(m.rounds), period=m.period, alike=_alike(m))
    warnings += [
        *cautions(m, environment),
        *account_cautions(m),
        *compression_cautions(m),
        *link_cautions(m.case.spec.network, m.links),
    ]
    if timing:
        metrics = judged(timing, warnings) | _other_metrics(m)
        used, impossible = utilisation(m, metrics["step_time_s"], rounds)
        drawn = power_cautions(m)
        needed = memory_cautions(m)
        seen = trace_cautions(m)
        metrics |= trace_metrics(m, metrics["step_time_s"], seen)
        metrics |= used | power_metrics(m, drawn) | memory_metrics(m, needed)
        warnings += [*impossible, *drawn, *needed, *seen]
    return RunRecord(
        id=run_id,
        suite=suite,
        status=m.status,
        reason=m.reason,
        started_at=started_at,
        spec=m.case.spec,
        spec_id=m.case.spec_id,
        repeat=m.case.repeat,
        environment=environment,
        metrics=metrics,
        traffic=traffic_of(m),
        held=held_of(m),
        flops=flops_of(m),
        power=m.power,
        memory=memory_of(m),
        traced=m.traced,
        breakdown=breakdown_of(m),
        precision=precision_of(m),
        notes=tuple(one.notes for one in m.inspected) if any(one.notes for one in m.inspected) else (),
        agreement=m.agreement or (_unchecked(m) if m.status == "complete" else None),
        warnings=tuple(warnings),
        numerics=numerics(m),
        chosen=m.chosen | {"threads": _threads(m.case.spec.threads)} | (m.links.chosen if m.links else {}),
        launch=_launch(m, sweep),
        warm_up=m.warm_up,
        rounds=tuple(rounds),
        failure=m.failure,
        resolved_suite=resolved_suite,
        resumed_from=resumed_from,
    )


def _alike(m: Measured) -> bool:
    """Whether all ranks do the same: a pipeline's first stage ends last and a server sends more without being slow."""
    sent = [one.sent for one in m.inspected]
    return len(sent) > 1 and "layers" not in m.shards and all(one == sent[0] for one in sent)


def _threads(threads: int) -> Chosen:
    because = "asked for" if threads > 1 else "the default: ranks of one machine do not compete for cores by threads"
    return Chosen(value=str(threads), because=because)


def steps_of(m: Measured) -> Mapping[str, Column]:
    """Return every raw sample as columns: phase, round, rank, step, seconds, samples, loss."""
    columns: Steps = {name: [] for name in ("phase", "round", "rank", "step", "seconds", "samples", "loss")}
    for phase, rounds in (("warmup", m.warm_up_rounds), ("timed", m.rounds)):
        for index, samples in enumerate(rounds):
            for rank, done in enumerate(samples.ranks):
                _add(columns, phase, index, rank, samples, done.seconds, done.losses)
    for name in dict.fromkeys(s.name for r in (*m.warm_up_rounds, *m.rounds) for d in r.ranks for s in d.series):
        columns[name] = [
            value
            for rounds in (m.warm_up_rounds, m.rounds)
            for samples in rounds
            for done in samples.ranks
            for value in _values(done, name)
        ]
    return columns


def _values(done: StepsDone, name: str) -> Sequence[float | None]:
    found = next((s.values for s in done.series if s.name == name), ())
    return found or (None,) * len(done.seconds)


def _add(
    columns: Steps,
    phase: str,
    index: int,
    rank: int,
    samples: RoundSamples,
    seconds: Sequence[float],
    losses: Sequence[float | None],
) -> None:
    for k, (took_s, loss) in enumerate(zip(seconds, losses, strict=True)):
        columns["phase"].append(phase)
        columns["round"].append(index)
        columns["rank"].append(rank)
        columns["step"].append(samples.first_step + k)
        columns["seconds"].append(took_s)
        columns["samples"].append(samples.samples[k])
        columns["loss"].append(loss)


def _round(index: int, r: RoundSamples) -> Round:
    return Round(
        index=index,
        first_step=r.first_step,
        steps=r.steps,
        samples=sum(r.samples),
        wall_s=r.wall_s,
        drain_s=r.drain_s,
        rank_wall_s=tuple(rank.wall_s for rank in r.ranks),
    )


def _seconds_by_rank(rounds: Sequence[RoundSamples]) -> list[list[float]]:
    if not rounds:
        return []
    return [[s for r in rounds for s in r.ranks[rank].seconds] for rank in range(len(rounds[0].ranks))]


def _other_metrics(m: Measured) -> dict[str, Metric]:
    found = (
        {"startup_s": _startup(m), "final_loss": _final_loss(m)}
        | _held_out(m)
        | account_metrics(m)
        | compression_metrics(m)
    )
    # A meter that gave nothing does not displace what is known without it.
    return found | {name: one for name, one in probed(m).items() if one.value is not None or name not in found}


def _startup(m: Measured) -> Metric:
    if m.startup_s is None:
        return Metric.unavailable("s", "lower", "the ranks were started by another program, or never took a step")
    source = "from asking for the ranks (forkserver running) to joined + building + first step; parity left out"
    return Metric(value=m.startup_s, unit="s", better="lower", n=1, source=source)


def _final_loss(m: Measured) -> Metric:
    if m.judged is None:
        return Metric.unavailable("nats", "lower", "the run ended before as many steps were trained as were asked for")
    losses = [x for x in m.judged.losses if x is not None]
    if len(losses) < len(m.judged.losses):
        return Metric.unavailable("nats", "lower", numerics(m))
    source = f"mean over training steps {m.judged.first_step} to {_judged_steps(m) - 1} of the global batch's mean loss"
    return Metric(value=math.fsum(losses) / len(losses), unit="nats", better="lower", n=len(losses), source=source)


def _judged_steps(m: Measured) -> int:
    return m.judged.first_step + m.judged.steps if m.judged else 0


def _held_out(m: Measured) -> dict[str, Metric]:
    found = m.held_out.values if m.held_out else {}
    reason = (m.held_out.reason if m.held_out else None) or "the run ended before held-out data was judged"

    def one(key: str, unit: str, better: Better) -> Metric:
        if key not in found:
            return Metric.unavailable(unit, better, reason)
        source = f"one process on held-out data, after {_judged_steps(m)} training steps"
        return Metric(value=found[key], unit=unit, better=better, n=1, source=source)

    usual = {"held_out_loss": one("loss", "nats", "lower"), "held_out_accuracy": one("accuracy", "fraction", "higher")}
    # What else a workload judges by, such as an area under a curve.
    others = (key for key in found if f"held_out_{key}" not in usual)
    return usual | {f"held_out_{key}": one(key, "fraction", "higher") for key in others}


def _unchecked(m: Measured) -> Agreement:
    reason = "the check was left out (parity_steps = 0): the strategy may not compute what one process does"
    return Agreement(declared=m.agrees, passed=None, reason=reason)


def _launch(m: Measured, sweep: str) -> dict[str, str | int | float | bool | list[str]]:
    told: dict[str, str | int | float | bool | list[str]] = {
        "sweep": sweep,
        "kind": m.launch_kind,
        "ranks": m.launch_world_size,
        "devices": list(m.devices),
        "interleaved_with": list(m.interleaved_with),
        "together_because": m.together_because,
        "unit": m.unit,
        "units_per_sample": m.units_per_sample,
        "parameters": m.parameters,
        "period": m.period,
    }
    costs = [one.cost_s for one in m.inspected if one.cost_s is not None]
    if costs:
        told["harness_s_per_step"] = max(costs)
    if m.neighbour_cores is not None:
        told["neighbour_cores"] = round(m.neighbour_cores, 3)
    return told | link_facts(m.links)
