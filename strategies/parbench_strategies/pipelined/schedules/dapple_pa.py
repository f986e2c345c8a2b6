"""dapple-pa begins with min(P-i, D) forwards on rank i, then does one backward and one forward in turn.

    dapple-pa(fit=2): 3 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 .  .  .  .  .  B0--- F2 .  .  .  B1--- F3 .  .  .  B2--- .  B3---
    rank 1  .  F0 F1 .  .  B0--- .  .  .  F2 B1--- .  .  .  F3 B2--- .  B3--- .  .
    rank 2  .  .  F0 B0--- F1 B1--- .  .  .  F2 B2--- .  .  .  F3 B3--- .  .  .  .

D micro-batches fit into memory: `fit`; as many as are wanted, if it is not given. This is the paper's policy for
transfers that cost little beside computing. A rank holds min(P-i, D) micro-batches. Where too few
fit for each rank to be one ahead of the next, ranks wait for each other in every turn.
"""

from __future__ import annotations

from typing import final

from parbench.paper import Paper
from parbench_strategies.pipelined.schedules._alternating import Alternating
from parbench_strategies.pipelined.schedules._fitting import checked_fit, fitting


@final
class DapplePolicyA(Alternating):
    """Begins with P-i forwards on rank i where they fit, then does one backward and one forward in turn.

    Args:
        fit: micro-batches whose activations fit into a rank's memory, the paper's D; None for as many as are wanted.
    """

    name = "dapple-pa"
    paper = Paper(
        "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models (Fan et al., 2021)",
        "https://arxiv.org/abs/2007.01045",
    )

    def __init__(self, fit: int | None = None) -> None:
        self._fit = checked_fit(fit)

    def warm_up(self, rank: int, ranks: int) -> int:
        return fitting(ranks - rank, self._fit)
