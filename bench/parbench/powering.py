"""Powering measures energy: meters found and idle power read before work, then one block of steps of each variant.

found, idle 2 s | build, parity, warm-up, rounds of all | A A A A A | B B B B B |
                                                           blocks of one variant, ten periods of a counter or more
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from parbench.launch.messages import Idle, Locate, Metered, Reply
from parbench.observed import Power, Reading
from parbench.pace import whole_periods
from parbench.powerplan import Place
from parbench.session import RoundSamples, Variant

# Counters of boards change ten times a second or more: twenty of their periods.
BLOCK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The meters of power that a launch has.

    Attributes:
        places: where its ranks are.
        idle_w: (host, what) -> power before any rank had built anything.
        reason: why there are none; None where there are.
    """

    places: tuple[Place, ...] = ()
    idle_w: Mapping[tuple[str, str], float] | None = None
    reason: str | None = None


def find_meters(call: Callable[[Locate | Idle], Sequence[Reply]]) -> Meters:
    """Ask every rank where it is, and read the power of doing nothing.

    Args:
        call: lets every rank carry out a command.
    """
    places = tuple(r.place for r in call(Locate()) if isinstance(r, Metered) and r.place is not None)
    lacking = next((one.reason for one in places if one.reason is not None), None)
    if lacking is not None or not places:
        return Meters(places=places, reason=lacking or "the ranks do not say where they are")
    read = call(Idle(places=places, seconds=BLOCK_S))
    idle_w = {
        (place.host, one.id): one.energy_j / one.window_s
        for place, reply in zip(places, read, strict=True)
        if isinstance(reply, Metered)
        for one in reply.readings
        if one.energy_j is not None and one.window_s > 0
    }
    return Meters(places=places, idle_w=idle_w)


def measure_power(meters: Meters, variant: Variant, rounds: Sequence[RoundSamples]) -> Power:
    """Let one variant step for a block while the others stand still, and return what the meters read.

    Args:
        meters: what the launch has.
        variant: whose energy is wanted.
        rounds: its timed rounds: how long a step takes.
    """
    if meters.reason is not None:
        return Power(reason=meters.reason)
    step_s = median(r.wall_s / r.steps for r in rounds) if rounds else BLOCK_S
    steps = whole_periods(max(1, math.ceil(BLOCK_S / step_s)), variant.period)
    metered = variant.energy(steps, meters.places)
    hosts = {host: number for number, host in enumerate(dict.fromkeys(one.host for one in meters.places))}
    boards = tuple(
        _known(one, place.host, hosts, meters)
        for place, reply in zip(meters.places, metered, strict=False)
        for one in reply.readings
    )
    return Power(boards=boards, samples=max((one.samples for one in metered), default=0))


def _known(one: Reading, host: str, hosts: Mapping[str, int], meters: Meters) -> Reading:
    idle_w = (meters.idle_w or {}).get((host, one.id))
    return msgspec.structs.replace(one, host=hosts[host], idle_w=idle_w)
