"""A Timeline is when each action of a pipeline starts and ends, where every rank works as soon as it can.

An action starts when its rank is free and what it takes is there. Transfers take no time, so this is the schedule's own
idle time: a lower bound of what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from parbench.order import checked_order, executed
from parbench.schedule import Action, Costs, Schedule, Transfer


@dataclass(frozen=True, slots=True)
class Timed:
    """An action with its time, in the unit of the costs."""

    action: Action
    start: Fraction
    end: Fraction


Timeline = Sequence[Sequence[Timed]]


def timeline(schedule: Schedule, ranks: int, microbatches: int, costs: Costs) -> Timeline:
    """Return the timed actions of every rank, in order; the step begins at 0.

    Raises:
        UsageError: the schedule refuses these numbers, or is broken.
    """
    order = checked_order(schedule, ranks, microbatches)
    lines: list[list[Timed]] = [[] for _ in order]
    there: dict[Transfer, Fraction] = {}
    for rank, action in executed(schedule, order):
        free = lines[rank][-1].end if lines[rank] else Fraction(0)
        taken = schedule.takes(action, rank, ranks)
        start = free if taken is None else max(free, there[taken])
        lines[rank].append(Timed(action, start, start + costs.of(action.kind)))
        given = schedule.gives(action, rank, ranks)
        if given is not None:
            there[given] = lines[rank][-1].end
    return lines


def idle_fraction(lines: Timeline, *, barrier: bool = False) -> Fraction:
    """Return the mean idle time of the ranks / length of a step.

        rank 0  |=====....=====|                steps that follow each other without a barrier are as long as the
        rank 1     |==========|                 longest line; with one, as from the first start to the last end

    Args:
        lines: the timeline of a step.
        barrier: all ranks wait for the last one before the next step, as for a gradient norm over all stages.
    """
    work = sum((one.end - one.start for line in lines for one in line), Fraction(0))
    length = (
        max(line[-1].end for line in lines) - min(line[0].start for line in lines)
        if barrier
        else max(line[-1].end - line[0].start for line in lines)
    )
    return 1 - work / (len(lines) * length)
