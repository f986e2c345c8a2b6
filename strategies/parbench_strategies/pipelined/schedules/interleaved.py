"""interleaved gives a rank v chunks of the model, so that the pipeline fills and drains in steps of a v-th of the work.

    interleaved(v=2): 2 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0a F1a F0b F1b F2a .   B0b---- F3a B1b---- F2b B0a---- F3b B1a---- .   B2b---- .   B3b---- B2a---- B3a----
    rank 1  .   F0a F1a F0b B0b---- F1b B1b---- F2a B0a---- F3a B1a---- F2b B2b---- F3b B3b---- B2a---- B3a---- .   .

Micro-batches go in groups of P: a group passes a rank's first chunk, then its second one; so M is a multiple of P.
Idle are P-1 of M v + P-1 parts of the time (the paper's (p-1)/(m v), relative to the work, section 2.2.2), for v times
the transfers. A send must not block: the next forward is received before the result of the last backward is.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import final

from parbench.paper import Paper
from parbench.schedule import Action, Costs, Kind, Schedule

_MOST_CHUNKS = 64


@final
class Interleaved(Schedule):
    """Does one forward and one backward in turn, on v chunks per rank that are P stages apart.

    Args:
        v: chunks of the model per rank, 2 to 64.
    """

    name = "interleaved"
    paper = Paper(
        "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (Narayanan et al., 2021)",
        "https://arxiv.org/abs/2104.04473",
    )

    def __init__(self, v: int = 2) -> None:
        if not 2 <= v <= _MOST_CHUNKS:
            advice = "; with one chunk it is 1f1b" if v == 1 else ""
            raise ValueError(f"v is the number of chunks per rank, 2 to {_MOST_CHUNKS}, given {v}{advice}")
        self._v = v

    @property
    def chunks(self) -> int:
        return self._v

    def refuses(self, ranks: int, microbatches: int) -> str | None:
        """Refuse micro-batches that cannot go in groups of one per rank."""
        refusal = super().refuses(ranks, microbatches)
        if refusal is not None or microbatches % ranks == 0:
            return refusal
        below = microbatches // ranks * ranks
        near = f"{below} and {below + ranks}" if below else f"{ranks}"
        return (
            f"interleaved needs a multiple of the ranks as micro-batches, given {microbatches} on {ranks} ranks; "
            f"the nearest: {near}"
        )

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        whole, ahead = microbatches * self._v, self._ahead(rank, ranks, microbatches)
        for k in range(ahead):
            yield self._turn("F", k, ranks)
        for k in range(whole):
            if ahead + k < whole:
                yield self._turn("F", ahead + k, ranks)
            yield self._turn("B", k, ranks)

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction:
        """(P-1) / (M v + P-1), whatever a forward and a backward take."""
        return Fraction(ranks - 1, microbatches * self._v + ranks - 1)

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        return min(self._ahead(rank, ranks, microbatches) + 1, microbatches * self._v)

    def _ahead(self, rank: int, ranks: int, microbatches: int) -> int:
        """Return the forwards before the first pair of one forward and one backward.

        All groups but one chunk of the first, and two for each rank to come: there and back.
        """
        return min((self._v - 1) * ranks + 2 * (ranks - 1 - rank), microbatches * self._v)

    def _turn(self, kind: Kind, k: int, ranks: int) -> Action:
        """Return the k-th forward or backward of a rank; backwards begin at the last chunk."""
        group, within = divmod(k, ranks * self._v)
        chunk = within // ranks
        return Action(kind, group * ranks + within % ranks, chunk if kind == "F" else self._v - 1 - chunk)
