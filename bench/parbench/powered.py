"""Powered is what a record says of power and energy: sums over boards, not over ranks, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parbench.boardmeter import held_down_by_heat
from parbench.cases import Measured
from parbench.energy import DISAGREE, disagreement
from parbench.observed import Power, Reading
from parbench.record import Better, Metric, Quality, Warned

ENERGY = ("energy_j_per_step", "energy_j_per_sample", "power_w")
# A counter may be off by a few per cent, and a limit is held on average only.
_ABOVE_LIMIT = 1.1


def power_metrics(m: Measured, warnings: Sequence[Warned]) -> dict[str, Metric]:
    """Return energy and power of one variant stepping alone.

    Args:
        m: what was measured.
        warnings: of `power_cautions`; they make numbers suspect.
    """
    power = m.power or Power(reason="the run ended before power was read")
    units = dict(zip(ENERGY, ("J", "J", "W"), strict=True))
    if m.unit == "tokens":
        units["energy_j_per_token"] = "J"
    lacking = power.reason or next((one.reason for one in power.boards if one.reason is not None), None)
    if lacking is None and not power.boards:
        lacking = "no meter was read"
    if lacking is not None:
        return {name: Metric.unavailable(unit, "lower", lacking) for name, unit in units.items()}
    steps, window_s = power.boards[0].steps, power.boards[0].window_s
    total_j = math.fsum(one.energy_j or 0.0 for one in power.boards)
    values = {
        "energy_j_per_step": total_j / steps,
        "energy_j_per_sample": total_j / power.samples,
        "power_w": math.fsum((one.energy_j or 0.0) / one.window_s for one in power.boards),
        "energy_j_per_token": total_j / (power.samples * m.units_per_sample),
    }
    quality, reason = _quality(power, warnings)
    better: Better = "lower"
    source = f"{_scope(power)}, {_sources(power)}, over {steps} steps in {window_s:.3g} s of this variant alone"
    return {
        name: Metric(
            value=values[name], unit=unit, better=better, n=1, source=source, quality=quality, reason=reason
        ).finite()
        for name, unit in units.items()
    }


def _quality(power: Power, warnings: Sequence[Warned]) -> tuple[Quality, str | None]:
    damning = [one for one in warnings if one.code in ("energy_disagrees", "energy_above_limit")]
    if damning:
        return "suspect", f"{damning[0].code}: {damning[0].message}"
    doubts = [one.estimated for one in power.boards if one.estimated is not None]
    return ("estimated", doubts[0]) if doubts else ("measured", None)


def _scope(power: Power) -> str:
    count = len(power.boards)
    scopes = sorted({one.scope for one in power.boards})
    return f"{count} {' and '.join(scopes)}{'' if count == 1 else 's'}, idle power included"


def _sources(power: Power) -> str:
    words = {"counter": "energy counter", "integral": "integral of polled power"}
    kinds = sorted({words.get(one.source, one.source) for one in power.boards})
    averaged = any(one.field == "average" and one.source == "integral" for one in power.boards)
    return " and ".join(kinds) + (" (averages over a second)" if averaged else "")


def power_cautions(m: Measured) -> list[Warned]:
    """Return what a reader must know of the boards: contradictions, throttling, neighbours, several models."""
    boards = m.power.boards if m.power else ()
    found = [check(one) for check in (_disagrees, _above_limit, _throttled, _shared) for one in boards]
    # Boards that suffer alike are one finding: the first of each kind speaks for all.
    kinds = {one.code: one for one in reversed([*found, _mixed(m)]) if one is not None}
    return list(kinds.values())[::-1]


def _disagrees(one: Reading) -> Warned | None:
    apart = disagreement(one.counter_j, one.integral_j)
    if apart is None or apart <= DISAGREE:
        return None
    return Warned(
        code="energy_disagrees",
        message=f"{_named(one)}: the energy counter says {one.counter_j:.4g} J, the integral of power "
        f"{one.integral_j:.4g} J: {apart:.0%} apart",
        advice="believe neither before a wall meter has decided; drivers have had wrong counters",
    )


def _above_limit(one: Reading) -> Warned | None:
    if one.energy_j is None or one.limit_w is None or one.energy_j <= _ABOVE_LIMIT * one.limit_w * one.window_s:
        return None
    return Warned(
        code="energy_above_limit",
        message=f"{_named(one)}: {one.energy_j:.4g} J in {one.window_s:.3g} s is {one.energy_j / one.window_s:.0f} W, "
        f"above its limit of {one.limit_w:.0f} W",
        advice="the meter or the window is wrong: do not use this energy",
    )


def _throttled(one: Reading) -> Warned | None:
    if not one.throttled:
        return None
    clocks = f"; clocks of {one.clocks_mhz[0]} to {one.clocks_mhz[1]} MHz" if len(one.clocks_mhz) == 2 else ""
    most = f" of {one.most_clock_mhz}" if one.most_clock_mhz else ""
    heat = held_down_by_heat(one.throttled)
    limit = f"the power limit is {one.limit_w:.0f} W" if one.limit_w else "a power limit holds"
    return Warned(
        code="throttled",
        message=f"{_named(one)}: clocks were held down by {', '.join(one.throttled)}{clocks}{most}",
        advice="it is too warm, and speed drifts with temperature: cool it, wait, or lock the clocks (nvidia-smi -lgc)"
        if heat
        else f"{limit}: the same for all strategies, but not for another machine's; say it beside the numbers",
    )


def _shared(one: Reading) -> Warned | None:
    if not one.others:
        return None
    return Warned(
        code="gpu_shared",
        message=f"{_named(one)}: {one.others} other process{'es' if one.others > 1 else ''} computed on it",
        advice="end them, or refuse such boards with --exclusive",
    )


def _mixed(m: Measured) -> Warned | None:
    models = sorted(set(m.devices[: m.case.spec.world_size]))
    if len(models) < 2:
        return None
    return Warned(
        code="mixed_gpus",
        message=f"the ranks' devices are of several models ({', '.join(models)}): the row is not ranked",
        advice="use boards of one model (CUDA_VISIBLE_DEVICES)",
    )


def _named(one: Reading) -> str:
    number = f" {one.index}" if one.index is not None else ""
    return f"{one.name}{number}"
