"""optimal ends the last exchange as early as any grouping can, by a dynamic programme, on any link.

    optimal: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ......+++0001+++23333+++455

Groups are consecutive gradients, exchanged one after the other. If gradient j is ready at ready[j], and those after i
up to j have size(i, j) bytes, the first j have been exchanged at

    end[j] = min over i < j of  max(end[i], ready[j]) + T(size(i, j)),    end[0] = 0

because ending earlier is never worse for what follows. Nothing is assumed of T but that it never falls: it may be
alpha + beta m or measured. Of the groupings that end first, one of few groups is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, cut_plan, needed


@final
class Optimal(FusionRule):
    """Groups consecutive gradients so that, under the model of MG-WFBP, the last exchange ends first."""

    name = "optimal"
    paper = Paper(
        "the problem of MG-WFBP: Merging Gradients Wisely for Efficient Communication in Distributed Deep Learning "
        "(Shi, Chu and Li, 2021), solved exactly",
        "https://arxiv.org/abs/1912.09268",
    )
    needs_profile = True
    needs_link = True

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        seconds = needed(link, self).seconds
        before = list(accumulate((one.bytes for one in gradients), initial=0))
        best: list[tuple[float, int]] = [(0.0, 0)]  # when the first j have been exchanged, and in how many groups
        origin: list[int] = [0]
        for j, one in enumerate(gradients, start=1):
            found, start = (float("inf"), 0), j - 1
            for i in range(j - 1, -1, -1):
                taken_s = seconds(before[j] - before[i])
                if one.ready_s + taken_s > found[0]:
                    break  # longer groups end later still
                end = (max(best[i][0], one.ready_s) + taken_s, best[i][1] + 1)
                if end < found:
                    found, start = end, i
            best.append(found)
            origin.append(start)
        return cut_plan(gradients, _cuts(origin))


def _cuts(origin: Sequence[int]) -> list[int]:
    """Return where groups begin, followed back from the last one."""
    cuts: list[int] = []
    place = origin[-1]
    while place > 0:
        cuts.append(place)
        place = origin[place]
    return cuts[::-1]
