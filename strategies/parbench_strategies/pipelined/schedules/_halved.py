"""Halved schedules do the gradient of the inputs at once and that of the weights some micro-batches later."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from parbench.schedule import Action, Schedule


class Halved(Schedule):
    """Alternates I and F; W follows its I by as many micro-batches as keep equally many live on every rank."""

    @abc.abstractmethod
    def warm_up(self, rank: int, ranks: int) -> int:
        """Return how many forwards a rank does before its first I, where there are that many."""

    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        ahead = min(self.warm_up(rank, ranks), microbatches)
        # The first rank has the longest way back and lets no W wait; the others have room for as many as it is ahead.
        later = self.warm_up(0, ranks) - self.warm_up(rank, ranks)
        for k in range(ahead):
            yield Action("F", k)
        for k in range(microbatches):
            yield Action("I", k)
            if k >= later:
                yield Action("W", k - later)
            if k + ahead < microbatches:
                yield Action("F", k + ahead)
        for k in range(max(0, microbatches - later), microbatches):
            yield Action("W", k)

    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        """As many on every rank as on the first; of these, `warm_up` wait for I and the others for W only."""
        return min(self.warm_up(0, ranks), microbatches)
