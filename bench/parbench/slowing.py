"""Slowing makes ranks slow on purpose: each computes at a given speed, and now and then one stops for a while.

--rank-speed 1,0.5         rank 1 computes at half its speed: after each step it sleeps as long as it has computed
--straggler "exponential(mean=0.2, every=10)"    each rank stops once in ten steps, for 0.2 s on average

rank 0  == step ==|           waits          |== step ==
rank 1  == step ==| sleeps: half speed |     |== step ==     what a rank waits for others is not slowed
"""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from parbench import bind
from parbench.errors import UsageError, unknown_name
from parbench.grammar import parse

SERIES: Final = "injected_wait_s_per_step"

_LOWEST_SPEED: Final = 0.001
_LONGEST_S: Final = 3600.0
_RARELY: Final = 10**6
_HOW_SPEED: Final = "write one number from 0.001 to 1 (its own speed) per rank, such as 1,1,0.5"


class Straggler(abc.ABC):
    """When ranks stop, and for how long.

    Args:
        every: each rank stops once in so many steps, in one that is drawn.
        rank: the one that does; None lets every rank stop, each in steps of its own.

    Raises:
        ValueError: a number is not one of those allowed.
    """

    def __init__(self, every: int, rank: int | None) -> None:
        if not 1 <= every <= _RARELY:
            raise ValueError(f"every must be from 1 (every step) to {_RARELY} steps, got {every}")
        if rank is not None and rank < 0:
            raise ValueError(f"rank must be from 0, got {rank}")
        self.every = every
        self.rank = rank

    def wait_s(self, rank: int, step: int, seed: int) -> float:
        """Return how long a rank stops in a step: the same for the same seed."""
        if self.rank not in (None, rank):
            return 0.0
        block, place = divmod(step, self.every)
        drawn = random.Random(f"straggler {seed} {rank} {block}")
        return self.draw_s(drawn) if drawn.randrange(self.every) == place else 0.0

    @abc.abstractmethod
    def draw_s(self, drawn: random.Random) -> float:
        """Return the length of one stop in seconds."""


@final
class _Fixed(Straggler):
    """Every stop takes as long."""

    def __init__(self, seconds: float, every: int = 1, rank: int | None = None) -> None:
        super().__init__(every, rank)
        self.seconds = _duration("seconds", seconds)

    def draw_s(self, drawn: random.Random) -> float:
        return self.seconds


@final
class _Uniform(Straggler):
    """Stops take from `low` to `high` seconds, all alike likely."""

    def __init__(self, low: float, high: float, every: int = 1, rank: int | None = None) -> None:
        super().__init__(every, rank)
        self.low, self.high = _duration("low", low), _duration("high", high)
        if low > high:
            raise ValueError(f"low must not be above high, got low={low}, high={high}")

    def draw_s(self, drawn: random.Random) -> float:
        return drawn.uniform(self.low, self.high)


@final
class _Exponential(Straggler):
    """Stops take `mean` seconds on average; short ones are frequent and long ones rare."""

    def __init__(self, mean: float, every: int = 1, rank: int | None = None) -> None:
        super().__init__(every, rank)
        self.mean = _duration("mean", mean)

    def draw_s(self, drawn: random.Random) -> float:
        return self.mean * drawn.expovariate(1.0)


_DISTRIBUTIONS: Final[Mapping[str, type[Straggler]]] = {
    "exponential": _Exponential,
    "fixed": _Fixed,
    "uniform": _Uniform,
}


def _duration(name: str, seconds: float) -> float:
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(f"{name} must be from 0 to {_LONGEST_S:g} seconds, got {seconds}")
    return seconds


def parse_straggler(text: str) -> Straggler:
    """Read a distribution such as `exponential(mean=0.2, every=10)`.

    Raises:
        UsageError: there is no such distribution, or an argument is not allowed.
    """
    call = parse(text)
    found = bind.construct(_distribution(call.name), call)
    if not isinstance(found, Straggler):
        raise TypeError(f"{call.name} is no distribution")
    return found


def straggler_text(text: str) -> str:
    """Return the one spelling of all texts that mean the same.

    Raises:
        UsageError: there is no such distribution, or an argument is not allowed.
    """
    parse_straggler(text)
    call = parse(text)
    return bind.canonical(_distribution(call.name), call)


def parse_speeds(text: str) -> tuple[float, ...]:
    """Read the speed of each rank, such as `1,1,0.5`.

    Raises:
        UsageError: something is no speed.
    """
    try:
        speeds = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--rank-speed {text[:80]!r} is no list of numbers; {_HOW_SPEED}") from None
    wrong = next((speed for speed in speeds if not _LOWEST_SPEED <= speed <= 1), None)
    if wrong is not None:
        raise UsageError(f"--rank-speed {text[:80]!r} has a speed of {wrong:g}; {_HOW_SPEED}")
    return speeds


def speeds_text(text: str, world_size: int) -> str | None:
    """Return one spelling of the speeds of at least so many ranks; None where all are at their own.

    Raises:
        UsageError: there are fewer speeds than ranks, or something is no speed.
    """
    speeds = parse_speeds(text)
    if len(speeds) < world_size:
        raise UsageError(f"--rank-speed {text[:80]!r} holds {len(speeds)} of {world_size} ranks; {_HOW_SPEED}")
    return None if all(speed == 1 for speed in speeds) else ",".join(f"{speed:g}" for speed in speeds)


def said(rank_speed: str | None, straggler: str | None, world_size: int) -> str | None:
    """Return in words how any of so many ranks is slowed, or None where none is."""
    slow = rank_speed is not None and any(speed != 1 for speed in parse_speeds(rank_speed)[:world_size])
    parts = ([f"--rank-speed {rank_speed}"] if slow else []) + ([f"--straggler {straggler}"] if straggler else [])
    return " and ".join(parts) or None


def unsupported(rank_speed: str | None, device_type: str) -> str | None:
    """Return a sentence saying why ranks cannot be slowed here, or None."""
    if rank_speed is None or device_type == "cpu":
        return None
    return "--rank-speed needs --device cpu: how long a step computes is read from the clock of its thread"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How one rank is slowed.

    Attributes:
        rank: which.
        speed: of its computation, relative to what it can.
        straggler: when it stops besides; None lets it never.
        seed: decides when and for how long.
    """

    rank: int
    speed: float = 1.0
    straggler: Straggler | None = None
    seed: int = 0

    def wait_s(self, step: int, computed_s: float) -> float:
        """Return how long to sleep after a step.

        Args:
            step: its number.
            computed_s: CPU time that the stepping thread has spent in it.
        """
        stopped_s = self.straggler.wait_s(self.rank, step, self.seed) if self.straggler else 0.0
        return stopped_s + computed_s * (1 / self.speed - 1)


def pace_of(rank: int, rank_speed: str | None, straggler: str | None, seed: int) -> Pace | None:
    """Return how a rank is slowed; None where it is not."""
    if rank_speed is None and straggler is None:
        return None
    return Pace(
        rank=rank,
        speed=parse_speeds(rank_speed)[rank] if rank_speed is not None else 1.0,
        straggler=parse_straggler(straggler) if straggler is not None else None,
        seed=seed,
    )


def _distribution(name: str) -> type[Straggler]:
    if name not in _DISTRIBUTIONS:
        raise unknown_name("straggler distribution", name, _DISTRIBUTIONS, "such as exponential(mean=0.2, every=10)")
    return _DISTRIBUTIONS[name]
