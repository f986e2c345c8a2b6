"""eager-1f1b begins with about twice the forwards of 1f1b: each activation is sent one turn before it is needed.

    eager-1f1b: 3 ranks, 5 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 F3 F4 .  .  B0--- .  B1--- .  B2--- .  B3--- .  B4---
    rank 1  .  F0 F1 F2 .  B0--- F3 B1--- F4 B2--- .  B3--- .  B4--- .  .
    rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- .  .  .  .

With transfers that take no time it is as idle as 1f1b; with slow ones, computing hides the forward transfers. It holds
2(P-i)-1 micro-batches on rank i where 1f1b holds P-i.
"""

from __future__ import annotations

from typing import final

from parbench.paper import Paper
from parbench_strategies.pipelined.schedules._alternating import Alternating


@final
class EagerOneForwardOneBackward(Alternating):
    """Begins with 2(P-i)-1 forwards on rank i, then does one backward and one forward in turn."""

    name = "eager-1f1b"
    paper = Paper(
        "On Optimizing the Communication of Model Parallelism (Zhuang et al., 2023)",
        "https://arxiv.org/abs/2211.05322",
    )

    def warm_up(self, rank: int, ranks: int) -> int:
        return 2 * (ranks - rank) - 1
