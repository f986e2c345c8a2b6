"""Counting numbers the micro-batches of turns such as `F0 I1 W1`: of a kind and chunk, each is the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import final

from parbench.schedule import Action, Kind

# How a turn is written -> kind and chunk.
_WORDS: dict[str, tuple[Kind, int]] = {
    "F0": ("F", 0),
    "F1": ("F", 1),
    "B0": ("B", 0),
    "B1": ("B", 1),
    "I0": ("I", 0),
    "I1": ("I", 1),
    "W0": ("W", 0),
    "W1": ("W", 1),
}


@final
class Counting:
    """Knows how far each chunk is: of forwards, of gradients of inputs, of those of weights."""

    def __init__(self) -> None:
        self._next: Counter[tuple[str, int]] = Counter()

    def each(self, turn: str, times: int) -> Iterator[Action]:
        """Yield the actions of a turn, several times over.

        Args:
            turn: kinds and chunks, such as "F1 I1 W1"; a whole backward, "B0", counts as I and W.
            times: how often.
        """
        words = [_WORDS[word] for word in turn.split()]
        for _ in range(times):
            for kind, chunk in words:
                counted = "IW" if kind == "B" else kind
                yield Action(kind, self._next[counted[0], chunk], chunk)
                self._next.update((one, chunk) for one in counted)
