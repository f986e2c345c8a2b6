"""The timeline of a plan says when each exchange begins and ends if they share one channel: the model of MG-WFBP.

    backward  0--1--2--3--4--5--
    link      ......+++0001+++23333+++455

A group begins when its last gradient is ready and the exchange before it has ended. An exchange is never interrupted.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from parbench.fusion import Gradient, Link, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One message on the link.

    Attributes:
        group: its place in the plan.
        start_s: when it begins, from the start of backward.
        end_s: when it has ended.
    """

    group: int
    start_s: float
    end_s: float


def timeline(plan: Plan, gradients: Sequence[Gradient], link: Link) -> list[Exchange]:
    """Return the exchanges in the order in which they go.

    Where the channel is free, the group of the least priority number among those that are ready begins.
    """
    queues: dict[int, deque[int]] = defaultdict(deque)
    for number, group in enumerate(plan.groups):
        queues[group.priority].append(number)

    def head(priority: int) -> tuple[float, int]:
        return gradients[plan.groups[queues[priority][0]].last].ready_s, priority

    waiting = [head(priority) for priority in queues]
    heapq.heapify(waiting)
    ready: list[int] = []
    done: list[Exchange] = []
    free_s = 0.0
    while waiting or ready:
        if not ready:
            free_s = max(free_s, waiting[0][0])
        while waiting and waiting[0][0] <= free_s:
            heapq.heappush(ready, heapq.heappop(waiting)[1])
        priority = heapq.heappop(ready)
        number = queues[priority].popleft()
        end_s = free_s + link.seconds(plan.groups[number].bytes(gradients))
        done.append(Exchange(group=number, start_s=free_s, end_s=end_s))
        free_s = end_s
        if queues[priority]:
            heapq.heappush(waiting, head(priority))
    return done


def finish(plan: Plan, gradients: Sequence[Gradient], link: Link) -> float:
    """Return when the last exchange has ended, in seconds from the start of backward; 0 where there is none."""
    exchanges = timeline(plan, gradients, link)
    return exchanges[-1].end_s if exchanges else 0.0
