"""zbv has no bubble where forward and both halves of backward take equally long, in the memory of 1f1b.

    zbv: 2 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a I0a W0a F2b I2b W2b I1a W1a F3b I3b W3b I2a W2a I3a W3a .
    rank 1  .   F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a W3b W3a

F forward, I gradient of the inputs, W gradient of the weights; a is the chunk on the way down the V, b on the way up.
The last stage is on the first rank, so that what comes back finds every rank equally loaded: 2P chunks are live on
each, which is what the first rank of 1f1b holds (section 6 of the paper). As with zb-h2 a rank starts later than the
one before and ends as much later.

With fewer than 2P-1 micro-batches the order is that of 2P-1, without those that are not there. What goes from rank to
rank, activations and gradients together, is not taken in the order in which it is sent (see `Schedule.sent`), and a
send must not block.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import final

from parbench.paper import Paper
from parbench.schedule import Action, Costs
from parbench_strategies.pipelined.schedules._counting import Counting
from parbench_strategies.pipelined.schedules._vshape import VShaped


@final
class ZeroBubbleV(VShaped):
    """Alternates chunks and halves of backward so that each is done when its input arrives."""

    name = "zbv"
    paper = Paper("Zero Bubble Pipeline Parallelism (Qi et al., 2024), section 6", "https://arxiv.org/abs/2401.10241")

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        full = max(microbatches, 2 * ranks - 1)
        return (action for action in _full(rank, ranks, full) if action.microbatch < microbatches)

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """0 where F, I and W take equally long and there are 2P-1 micro-batches; the paper has no form for others."""
        alike = costs.forward == costs.input_gradient == costs.weight_gradient
        return Fraction(0) if ranks == 1 or (alike and microbatches >= 2 * ranks - 1) else None

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        """2P where there are micro-batches enough: 2P-1-i on the way down and i+1 on the way up."""
        return min(microbatches, 2 * ranks - 1 - rank) + min(microbatches, rank + 1)


def _full(rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
    do = Counting()
    # Down the V until the first micro-batch is back ...
    yield from do.each("F0", 2 * (ranks - rank) - 1)
    yield from do.each("F1 F0", rank)
    # ... turns of the chunk on the way up until the first gradient is down again, then of both ...
    yield from do.each("F1 I1 W1", ranks - rank)
    yield from do.each("F0 I0 W0 F1 I1 W1", microbatches - (2 * ranks - 1 - rank))
    yield from do.each("I0 W0 F1 I1 W1", ranks - 1 - rank)
    # ... and gradients of inputs first, as other ranks wait for them.
    yield from do.each("I0 I1", rank)
    yield from do.each("I0 W0", ranks - rank)
    yield from do.each("W1", rank)
    yield from do.each("W0", rank)
