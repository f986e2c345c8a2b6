"""searched tries groupings in real steps and keeps the one that was fastest: MergeComp's search for the best cut.

    searched(groups=2): gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      .........+++00012.+++3333455

Two groups have one cut. It is found by bisection: if a step with the cut one gradient later is faster, the best cut is
taken to be later. That is right where the time falls up to the best cut and rises after it; `exhaustive=True` tries
them all. As long as one more group saves enough, its cuts are searched too: all places of the others, and bisection for
the last. `probes` and `warmup` are steps of training: they count as any other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Sequence
from itertools import combinations
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, Search, cut_plan
from parbench_strategies.fusion._arguments import checked_count

_MOST_GROUPS = 8
_MOST_STEPS = 1000

Cuts = tuple[int, ...]
Probe = Generator[Plan, float, float]


@final
class Searched(FusionRule):
    """Searches for the cuts between groups with which steps take the least time, as the median of some says.

    Args:
        groups: at most so many; the paper found two to be enough.
        probes: steps of each grouping that count.
        warmup: steps before them that do not.
        gain: what a further group must save to be tried, as a part of the time. The default is not the paper's.
        exhaustive: try all cuts.
    """

    name = "searched"
    paper = Paper(
        "MergeComp: A Compression Scheduler for Scalable Communication-Efficient Distributed Training "
        "(Wang, Wu and Ng, 2021)",
        "https://arxiv.org/abs/2103.15195",
    )
    probes = True

    def __init__(
        self, groups: int = 2, probes: int = 5, warmup: int = 1, gain: float = 0.02, exhaustive: bool = False
    ) -> None:
        self._groups = checked_count("groups", groups, 1, _MOST_GROUPS)
        self._counted = checked_count("probes", probes, 1, _MOST_STEPS)
        self._warmup = checked_count("warmup", warmup, 0, _MOST_STEPS)
        if not 0 <= gain < 1:
            raise ValueError(f"gain is a part of the time, 0 or more and less than 1, given {gain!r}")
        self._gain = gain
        self._exhaustive = exhaustive

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        """Return groups of as many gradients each, as the published code does where it does not search."""
        groups = min(self._groups, len(gradients))
        return cut_plan(gradients, [len(gradients) * k // groups for k in range(1, groups)])

    def search(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Search:
        seen: dict[Cuts, float] = {}
        best_s = yield from self._median(gradients, (), seen)
        for groups in range(2, min(self._groups, len(gradients)) + 1):
            for head in combinations(range(1, len(gradients)), groups - 2):
                yield from self._last_cut(gradients, head, seen)
            found_s = min(seconds for cuts, seconds in seen.items() if len(cuts) == groups - 1)
            if found_s > best_s * (1 - self._gain):
                break
            best_s = found_s
        return cut_plan(gradients, min((seconds, len(cuts), cuts) for cuts, seconds in seen.items())[2])

    def _last_cut(
        self, gradients: Sequence[Gradient], head: Cuts, seen: dict[Cuts, float]
    ) -> Generator[Plan, float, None]:
        low, high = max(head, default=0) + 1, len(gradients) - 1
        if self._exhaustive:
            for cut in range(low, high + 1):
                yield from self._median(gradients, (*head, cut), seen)
            return
        while low <= high:
            middle = (low + high) // 2
            here_s = yield from self._median(gradients, (*head, middle), seen)
            if middle == high:
                return
            later_s = yield from self._median(gradients, (*head, middle + 1), seen)
            low, high = (middle + 1, high) if later_s < here_s else (low, middle)

    def _median(self, gradients: Sequence[Gradient], cuts: Cuts, seen: dict[Cuts, float]) -> Probe:
        if cuts not in seen:
            plan = cut_plan(gradients, cuts)
            taken: list[float] = []
            for _ in range(self._warmup + self._counted):
                seconds = yield plan
                if not (math.isfinite(seconds) and seconds >= 0):
                    raise ValueError(f"a step takes a finite number of seconds, given {seconds!r}")
                taken.append(seconds)
            seen[cuts] = statistics.median(taken[self._warmup :])
        return seen[cuts]
