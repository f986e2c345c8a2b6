"""zb-h1 fills a part of the bubble with gradients of weights, and needs no more memory than 1f1b.

    zb-h1: 3 ranks, 5 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 .  .  I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
    rank 1  .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
    rank 2  .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4

F forward, I gradient of the inputs (the paper's B), W gradient of the weights. Rank i lets W wait for i micro-batches:
I, on which the other ranks wait, comes sooner, and the W that are left fill the end. A rank is idle for
(P-1)(F+I-W), a third of 1f1b's (P-1)(F+I+W) where all three take equally long (sections 2.1 and 2.3 of the paper).
P micro-batches are live on every rank: P-i of them wait for I, the others for W only.
"""

from __future__ import annotations

from fractions import Fraction
from typing import final

from parbench.paper import Paper
from parbench.schedule import Costs
from parbench_strategies.pipelined.schedules._halved import Halved


@final
class ZeroBubbleH1(Halved):
    """Begins with P-i forwards on rank i, as 1f1b does, and delays W by i micro-batches."""

    name = "zb-h1"
    paper = Paper("Zero Bubble Pipeline Parallelism (Qi et al., 2024)", "https://arxiv.org/abs/2401.10241")
    blocking_sends = True

    def warm_up(self, rank: int, ranks: int) -> int:
        return ranks - rank

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """(P-1)(F+I-W) over that and the work, if M is at least P, and F takes at least W."""
        if ranks > 1 and (microbatches < ranks or costs.forward < costs.weight_gradient):
            return None
        idle = (ranks - 1) * (costs.forward + costs.input_gradient - costs.weight_gradient)
        return idle / (idle + microbatches * costs.total)
