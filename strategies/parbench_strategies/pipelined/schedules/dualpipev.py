"""dualpipev is one half of DeepSeek's DualPipe, cut out: a V whose forwards and backwards come in pairs that overlap.

    dualpipev: 2 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0a F1a F2a F0b I0b W0b F1b F3a B1b---- F2b B0a---- B2b---- F3b .   B1a---- B3b---- I2a W2a I3a W3a
    rank 1  .   F0a F0b F1a F1b F2a B0b---- F2b B0a---- F3a B1b---- F3b B1a---- B2b---- B2a---- I3b I3a W3b W3a

F forward, B whole backward, I and W its halves; a is the chunk on the way down the V, b on the way up. In its middle
part a rank does F of one chunk and B of the other, which a runtime may overlap. DeepSeek gives the idle time of a rank
as (P-1)(F&B + B - 3W), where a pair takes F&B and gives both results at its end. Done one after the other, as here, the
first half of a pair is there earlier: (P-1)(F+I-W), where W <= I <= F <= I+W (found and checked by simulation, not in
the publication). 2P+1 chunks are live on every rank, one more than in zbv.

It needs 2P micro-batches. What goes from rank to rank, activations and gradients together, is not taken in the order
in which it is sent (see `Schedule.sent`), and a send must not block.
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
class DualPipeV(VShaped):
    """Pairs a forward of one chunk with a backward of the other; halves of backward fill both ends."""

    name = "dualpipev"
    paper = Paper(
        "DeepSeek-V3 Technical Report (DeepSeek-AI, 2024), section 3.2.1; cut in half by Sea AI Lab (2025)",
        "https://arxiv.org/abs/2412.19437",
    )

    def refuses(self, ranks: int, microbatches: int) -> str | None:
        """Refuse fewer micro-batches than stages."""
        refusal = super().refuses(ranks, microbatches)
        if refusal is not None or microbatches >= 2 * ranks:
            return refusal
        return (
            f"dualpipev needs at least as many micro-batches as stages, two per rank, given {microbatches} on {ranks} "
            f"rank{'' if ranks == 1 else 's'}; the nearest is {2 * ranks}"
        )

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        do, behind = Counting(), ranks - 1 - rank
        yield from do.each("F0", 2 * behind)
        yield from do.each("F0 F1", rank + 1)
        yield from do.each("I1 W1 F1", behind)
        yield from do.each("F0 B1 F1 B0", microbatches - 2 * ranks + rank + 1)
        yield from do.each("B1 F1 B0", behind)
        yield from _halving(do, rank + 1)
        waiting = _waiting(rank, ranks)
        for word in waiting[:behind]:
            yield from do.each(f"{word} I0", 1)
        for word in waiting[behind:]:
            yield from do.each(word, 1)

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """(P-1)(F+I-W) over that and the work, if W <= I <= F <= I+W."""
        forward, inputs, weights = costs.forward, costs.input_gradient, costs.weight_gradient
        if ranks > 1 and not weights <= inputs <= forward <= inputs + weights:
            return None
        idle = (ranks - 1) * (forward + inputs - weights)
        return idle / (idle + microbatches * 2 * costs.total)

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        """2P in the beginning, and one more in a pair, whose forward comes first."""
        return 2 * ranks + 1


def _halving(do: Counting, turns: int) -> Iterator[Action]:
    """Yield so many backwards of each chunk, whole ones first, then gradients of inputs only."""
    for k in range(2 * turns):
        chunk = 1 - k % 2
        yield from do.each(f"{'B' if k < turns else 'I'}{chunk}", 1)


def _waiting(rank: int, ranks: int) -> list[str]:
    """Return the W that are left after the whole backwards, in the order of their I."""
    turns, behind = rank + 1, ranks - 1 - rank
    return [f"W{1 - k % 2}" for k in range(turns, 2 * turns)] + ["W0"] * behind
