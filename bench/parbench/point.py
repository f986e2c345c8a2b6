"""A Point is where a paper's system lies in the space of replicated strategies: a word or two on each of its axes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of the space; what is not said is plain synchronous training.

    Attributes:
        fusion: what is exchanged together.
        compressor: what is sent of it.
        collective: how it is added up.
        synchrony: when ranks are made equal.
        order: which message goes first.
    """

    fusion: str = "one message"
    compressor: str = "none"
    collective: str = "native"
    synchrony: str = "every step"
    order: str = "as ready"
