"""Accounts turn what ranks saw in an inspection into what a record says of traffic and held state, and its cautions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from parbench.cases import Measured
from parbench.facts import Inspected
from parbench.observed import Held, Traffic
from parbench.record import Metric, Warned

_UNSEEN = "the run ended before a step was inspected"


def traffic_of(m: Measured) -> Traffic | None:
    """Return what the rank that sends most sends in a step; None where no step was inspected."""
    if not m.inspected:
        return None
    rank = max(range(len(m.inspected)), key=lambda k: sum(m.inspected[k].sent.values()))
    one = m.inspected[rank]
    return Traffic(
        rank=rank,
        sent=one.sent,
        wire=one.wire,
        collectives=one.collectives,
        closed_form=one.traffic,
        textbook=one.textbook,
        textbook_bytes=one.textbook_bytes,
    )


def held_of(m: Measured) -> Held | None:
    """Return what the rank that holds most holds; None where no step was inspected or the trainer does not say."""
    found = [(sum(one.held.values()), rank) for rank, one in enumerate(m.inspected) if one.held is not None]
    if not found:
        return None
    rank = max(found, key=lambda pair: (pair[0], -pair[1]))[1]
    one = m.inspected[rank]
    return Held(rank=rank, held=one.held or {}, closed_form=one.memory, shards=m.shards)


def precision_of(m: Measured) -> dict[str, str]:
    """Return class of operators -> types it computed in on any rank: a stage of a pipeline has some classes only."""
    found: dict[str, set[str]] = {}
    for one in m.inspected:
        for name, types in one.types.items():
            found.setdefault(name, set()).update(types.split("+"))
    return {name: "+".join(sorted(types - {"none"} or {"none"})) for name, types in found.items()}


def account_metrics(m: Measured) -> dict[str, Metric]:
    """Return the metrics of traffic, and of compilation where there is one."""
    traffic = traffic_of(m)
    found = {"traffic_bytes_per_step": _logical(traffic), "wire_bytes_per_step": _wire(traffic)}
    return found | ({"compile_s": _compiled(m)} if m.case.spec.compile else {})


def account_cautions(m: Measured) -> list[Warned]:
    """Return what counts and closed forms disagree about."""
    found = []
    for rank, one in enumerate(m.inspected):
        if one.unreadable:
            found.append(
                Warned(
                    code="unread_collectives",
                    message=f"rank {rank} issues {', '.join(one.unreadable)}, which the counter cannot read",
                    advice="its traffic is at least what is said; add the operators to parbench.counting",
                )
            )
        found += [*_differing(rank, one)]
    # Ranks that differ alike are one finding: the first of each kind speaks for all.
    return list({one.code: one for one in reversed(found)}.values())[::-1]


def _differing(rank: int, one: Inspected) -> Sequence[Warned]:
    found = []
    if one.traffic is not None and (what := _difference(one.sent, one.traffic)):
        found.append(
            Warned(
                code="traffic_differs",
                message=f"rank {rank} does not send what the strategy's closed form says: {what} bytes per step",
                advice="believe the count; the closed form (Strategy.traffic) leaves something out",
            )
        )
    if one.held is not None and one.memory is not None:
        said = {kind: one.memory.get(kind, 0) for kind in one.held}
        if what := _difference(one.held, said):
            found.append(
                Warned(
                    code="memory_differs",
                    message=f"rank {rank} does not hold what the strategy's closed form says: {what} bytes",
                    advice="believe what is held; the closed form (Strategy.memory) leaves something out",
                )
            )
    return found


def _difference(seen: Mapping[str, float], said: Mapping[str, float]) -> str | None:
    for key in sorted(seen.keys() | said.keys()):
        a, b = seen.get(key, 0.0), said.get(key, 0.0)
        if not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6):
            return f"{key} {a:.12g}, said {b:.12g}"
    return None


def _logical(traffic: Traffic | None) -> Metric:
    if traffic is None:
        return Metric.unavailable("bytes", "lower", _UNSEEN)
    counted = f"logical bytes counted at the dispatcher in one period after the timed rounds, rank {traffic.rank}"
    return Metric(value=math.fsum(traffic.sent.values()), unit="bytes", better="lower", n=1, source=counted)


def _wire(traffic: Traffic | None) -> Metric:
    if traffic is None:
        return Metric.unavailable("bytes", "lower", _UNSEEN)
    if traffic.wire is None:
        return Metric.unavailable("bytes", "lower", "this backend does not say which algorithm it uses")
    source = f"the same collectives by the algorithms of this backend (docs/metrics.md), rank {traffic.rank}"
    return Metric(
        value=math.fsum(traffic.wire.values()),
        unit="bytes",
        better="lower",
        n=1,
        source=source,
        quality="estimated",
        reason="computed from the collectives, not read from the network",
    )


def _compiled(m: Measured) -> Metric:
    if m.compile_s is None:
        return Metric.unavailable("s", "lower", "the run ended before the first step")
    source = (
        "torch compiling, slowest rank, parity to last round; what another case of the launch compiled is not repeated"
    )
    return Metric(value=m.compile_s, unit="s", better="lower", n=1, source=source)
