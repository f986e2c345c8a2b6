"""Alternating schedules begin with some forwards, then do one backward and one forward in turn until none is left."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from fractions import Fraction

from parbench.schedule import Action, Costs, Schedule


class Alternating(Schedule):
    """Keeps as many micro-batches live as it begins with: a backward makes room for the next forward."""

    blocking_sends = True

    @abc.abstractmethod
    def warm_up(self, rank: int, ranks: int) -> int:
        """Return how many forwards a rank does before its first backward, where there are that many."""

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        ahead = self.peak_live(rank, ranks, microbatches)
        for k in range(ahead):
            yield Action("F", k)
        for k in range(microbatches):
            yield Action("B", k)
            if k + ahead < microbatches:
                yield Action("F", k + ahead)

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        return min(self.warm_up(rank, ranks), microbatches)

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """(P-1) / (M+P-1), whatever a forward and a backward take, if each rank is a micro-batch ahead of the next.

        Where two neighbours begin with equally many (too little memory), one waits for the other in every turn.
        """
        ahead = [self.peak_live(rank, ranks, microbatches) for rank in range(ranks)]
        if any(ahead[k] < min(ahead[k + 1] + 1, microbatches) for k in range(ranks - 1)):
            return None
        return Fraction(ranks - 1, microbatches + ranks - 1)
