"""GPipe does all forwards, then all backwards, the last micro-batch first: simple, and every activation is kept.

    gpipe: 3 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B3--- B2--- B1--- B0---
    rank 1  .  F0 F1 F2 F3 .  .  .  B3--- B2--- B1--- B0--- .  .
    rank 2  .  .  F0 F1 F2 F3 B3--- B2--- B1--- B0--- .  .  .  .

The order of the backwards is that of the paper's figure 2(c). Idle are P-1 of M+P-1 parts of the time (the paper's
O((K-1)/(M+K-1)), section 2.3), and each rank holds M micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import final

from parbench.paper import Paper
from parbench.schedule import Action, Costs, Schedule


@final
class GPipe(Schedule):
    """Does all forwards, then all backwards in reverse."""

    name = "gpipe"
    paper = Paper(
        "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism (Huang et al., 2019)",
        "https://arxiv.org/abs/1811.06965",
    )
    blocking_sends = True

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        yield from (Action("F", k) for k in range(microbatches))
        yield from (Action("B", k) for k in reversed(range(microbatches)))

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction:
        """(P-1) / (M+P-1), whatever a forward and a backward take."""
        return Fraction(ranks - 1, microbatches + ranks - 1)

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        return microbatches
