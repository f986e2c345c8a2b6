"""1f1b, PipeDream with a flush, does one forward and one backward in turn, so that few micro-batches are live.

    1f1b: 3 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---
    rank 1  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .
    rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .

A rank begins with as many forwards as there are ranks from it to the end. As idle as GPipe, (P-1) / (M+P-1), and a rank
holds at most P micro-batches instead of M (section 2.2.1 of the paper).
"""

from __future__ import annotations

from typing import final

from parbench.paper import Paper
from parbench_strategies.pipelined.schedules._alternating import Alternating


@final
class OneForwardOneBackward(Alternating):
    """Begins with P-i forwards on rank i, then does one backward and one forward in turn."""

    name = "1f1b"
    paper = Paper(
        "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (Narayanan et al., 2021)",
        "https://arxiv.org/abs/2104.04473",
    )

    def warm_up(self, rank: int, ranks: int) -> int:
        return ranks - rank
