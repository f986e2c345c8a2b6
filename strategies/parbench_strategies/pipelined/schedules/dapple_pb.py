"""dapple-pb begins with min(2(P-i)-1, D) forwards on rank i, then does one backward and one forward in turn.

    dapple-pb(fit=4): 3 ranks, 5 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 F3 .  .  .  B0--- F4 B1--- .  B2--- .  B3--- .  B4---
    rank 1  .  F0 F1 F2 .  B0--- F3 B1--- F4 B2--- .  B3--- .  B4--- .  .
    rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- .  .  .  .

D micro-batches fit into memory: `fit`; as many as are wanted, if it is not given. This is the paper's policy for
transfers that take about as long as computing. A rank holds min(2(P-i)-1, D) micro-batches. Where too few
fit for each rank to be one ahead of the next, ranks wait for each other in every turn.
"""

from __future__ import annotations

from typing import final

from parbench.paper import Paper
from parbench_strategies.pipelined.schedules._alternating import Alternating
from parbench_strategies.pipelined.schedules._fitting import checked_fit, fitting


@final
class DapplePolicyB(Alternating):
    """Begins with 2(P-i)-1 forwards on rank i where they fit, then does one backward and one forward in turn.

    Args:
        fit: micro-batches whose activations fit into a rank's memory, the paper's D; None for as many as are wanted.
    """

    name = "dapple-pb"
    paper = Paper(
        "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models (Fan et al., 2021)",
        "https://arxiv.org/abs/2007.01045",
    )

    def __init__(self, fit: int | None = None) -> None:
        self._fit = checked_fit(fit)

    def warm_up(self, rank: int, ranks: int) -> int:
        return fitting(2 * (ranks - rank) - 1, self._fit)
