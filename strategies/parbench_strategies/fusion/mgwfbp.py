"""mgwfbp waits for the next gradient where that costs less than another start-up time: the published merge rule.

    mgwfbp: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ...+++000+++12.+++33334+++55

A group whose exchange could begin at t takes the next gradient in if that is ready before t + alpha: until then the
exchange would not have moved a byte. Every such merge lets the gradients up to there end earlier. Where T(m) is
alpha + beta m, the rule is never slower than `per_tensor` or `merged`, and takes less than twice the time of `optimal`,
from the start of backward. It can come near to twice: each merge puts the exchange off by less than alpha, but many in
a row by as much as backward is long. On a measured link, T is what was measured and alpha that of the line through it.
Then it is no slower than `per_tensor` where T(x) + T(y) - T(x + y) >= alpha for all x and y, and no slower than
`merged` where that is <= alpha: both hold on a line alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, cut_plan, needed


@final
class MgWfbp(FusionRule):
    """Merges a gradient into the next one if that is ready before this one's exchange has paid its start-up time."""

    name = "mgwfbp"
    paper = Paper(
        "MG-WFBP: Merging Gradients Wisely for Efficient Communication in Distributed Deep Learning "
        "(Shi, Chu and Li, 2021)",
        "https://arxiv.org/abs/1912.09268",
    )
    needs_profile = True
    needs_link = True

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        link = needed(link, self)
        alpha_s = link.fitted().alpha_s
        cuts: list[int] = []
        held, free_s = 0, 0.0
        for index, (one, following) in enumerate(pairwise(gradients), start=1):
            held += one.bytes
            start_s, taken_s = max(free_s, one.ready_s), link.seconds(held)
            if following.ready_s < start_s + min(alpha_s, taken_s):
                continue
            cuts.append(index)
            held, free_s = 0, start_s + taken_s
        return cut_plan(gradients, cuts)
