"""zb-h2 has no bubble at all where forward and both halves of backward take equally long, for twice the memory.

    zb-h2: 3 ranks, 5 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 .  .
    rank 1  .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4 .
    rank 2  .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4

F forward, I gradient of the inputs (the paper's B), W gradient of the weights. Twice the forwards of 1f1b fill the
beginning, and W of up to 2i micro-batches, which rank i lets wait, the end. A rank is idle for (P-1)(F+I-2W); each
starts later than the one before and ends as much later, so the step must not end with a barrier (sections 2.2, 2.3 and
4 of the paper). 2P-1 micro-batches are live on every rank: 2(P-i)-1 of them wait for I, the others for W only. A send
must not block: a rank runs ahead of the next one by more than one micro-batch.
"""

from __future__ import annotations

from fractions import Fraction
from typing import final

from parbench.paper import Paper
from parbench.schedule import Costs
from parbench_strategies.pipelined.schedules._halved import Halved


@final
class ZeroBubbleH2(Halved):
    """Begins with 2(P-i)-1 forwards on rank i, and delays W by 2i micro-batches."""

    name = "zb-h2"
    paper = Paper("Zero Bubble Pipeline Parallelism (Qi et al., 2024)", "https://arxiv.org/abs/2401.10241")

    def warm_up(self, rank: int, ranks: int) -> int:
        return 2 * (ranks - rank) - 1

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """(P-1)(F+I-2W) over that and the work, if it is not negative, M is at least 2P-1, and F takes at least W."""
        idle = (ranks - 1) * (costs.forward + costs.input_gradient - 2 * costs.weight_gradient)
        full = microbatches >= 2 * ranks - 1 and costs.forward >= costs.weight_gradient and idle >= 0
        if ranks > 1 and not full:
            return None
        return idle / (idle + microbatches * costs.total)
