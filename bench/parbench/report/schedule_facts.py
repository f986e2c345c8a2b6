"""ScheduleFacts are what a reader of a schedule wants to know: its timeline, its bubble and what it keeps in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from parbench.order import peak_live
from parbench.paper import Paper
from parbench.schedule import Action, Costs, Kind, Schedule
from parbench.timeline import Timeline, idle_fraction, timeline

KINDS: dict[Kind, str] = {
    "F": "forward",
    "B": "whole backward",
    "I": "backward: gradient of the inputs",
    "W": "backward: gradient of the weights",
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """A schedule on some ranks, simulated.

    Attributes:
        text: the schedule as the user wrote it.
        paper: where it comes from.
        chunks: chunks of the model per rank.
        microbatches: of a step.
        costs: what was assumed.
        lines: when each rank does what; transfers take no time.
        idle: bubble of the timeline, steps following each other without a barrier.
        idle_with_barrier: the same with a barrier after every step.
        closed_form: bubble as the schedule's formula says, None where there is none for these numbers.
        peak_live: most live micro-batches of each rank, in activations of one chunk, counted.
        peak_live_form: the same as the schedule's formula says.
    """

    text: str
    paper: Paper
    chunks: int
    microbatches: int
    costs: Costs
    lines: Timeline
    idle: Fraction
    idle_with_barrier: Fraction
    closed_form: Fraction | None
    peak_live: tuple[int, ...]
    peak_live_form: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.lines)

    @property
    def length(self) -> Fraction:
        """When the last action ends."""
        return max(line[-1].end for line in self.lines)

    @property
    def unit(self) -> Fraction:
        """The longest time of which every start and end is a multiple."""
        costs = (self.costs.forward, self.costs.input_gradient, self.costs.weight_gradient)
        common = math.lcm(*(cost.denominator for cost in costs))
        return Fraction(math.gcd(*(int(cost * common) for cost in costs)), common)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of action that occur."""
        found = {one.action.kind for line in self.lines for one in line}
        return [kind for kind in KINDS if kind in found]

    def label(self, action: Action) -> str:
        """Return kind and micro-batch, and a letter for the chunk where there are several: F3, F3b."""
        if self.chunks == 1:
            return f"{action.kind}{action.microbatch}"
        chunk = _LETTERS[action.chunk] if self.chunks <= len(_LETTERS) else f".{action.chunk}"
        return f"{action.kind}{action.microbatch}{chunk}"


def schedule_facts(schedule: Schedule, text: str, ranks: int, microbatches: int, costs: Costs) -> ScheduleFacts:
    """Simulate a step.

    Raises:
        UsageError: the schedule refuses these numbers, or is broken.
    """
    lines = timeline(schedule, ranks, microbatches, costs)
    return ScheduleFacts(
        text=text,
        paper=schedule.paper,
        chunks=schedule.chunks,
        microbatches=microbatches,
        costs=costs,
        lines=lines,
        idle=idle_fraction(lines),
        idle_with_barrier=idle_fraction(lines, barrier=True),
        closed_form=schedule.bubble(ranks, microbatches, costs),
        peak_live=tuple(peak_live([one.action for one in line]) for line in lines),
        peak_live_form=tuple(schedule.peak_live(rank, ranks, microbatches) for rank in range(ranks)),
    )
