"""Compressed is what ranks made of given gradients with one compressor: averages, contributions, bytes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from parbench.api import Channel, Compressor
from parbench.compact import dense
from parbench.compressor import Carriage
from parbench.conformance.together import Together

Named = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One exchange.

    Attributes:
        given: `[rank][name]`.
        averages: `[rank][name]`.
        contributions: `[rank][name]`.
        sent: by rank 0, operation -> logical bytes.
    """

    given: Sequence[Named]
    averages: Sequence[Named]
    contributions: Sequence[Named]
    sent: Mapping[str, Fraction]


@final
class Ranks:
    """Ranks with a compressor each, which step together.

    Args:
        compressor: copied for every rank.
        world_size: how many ranks.
        seed: of what it draws.
    """

    def __init__(self, compressor: Compressor, world_size: int, seed: int = 1) -> None:
        self._together = Together(world_size)
        self.compressors = [copy.deepcopy(compressor) for _ in range(world_size)]
        for rank, one in enumerate(self.compressors):
            one.begin(rank=rank, world_size=world_size, seed=seed)

    @property
    def carriage(self) -> Carriage:
        """What messages cost here."""
        return self._together.carriage()

    def step(self, given: Sequence[Named], groups: Sequence[Sequence[str]] | None = None) -> Step:
        """Exchange the gradients of every rank, all as one group or in `groups` of names, and count a step."""
        names = [list(given[0])] if groups is None else groups

        def work(rank: int, channel: Channel) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            averages: dict[str, Tensor] = {}
            contributions: dict[str, Tensor] = {}
            for group in names:
                grads = [given[rank][name] for name in group]
                reduced = self.compressors[rank].start(grads, group, channel)()
                averages |= {name: dense(one.average).clone() for name, one in zip(group, reduced, strict=True)}
                contributions |= {
                    name: dense(one.contribution()).clone() for name, one in zip(group, reduced, strict=True)
                }
            return averages, contributions

        found, sent = self._together.run(work)
        for one in self.compressors:
            one.step += 1
        averages, contributions = zip(*found, strict=True)
        return Step(given=given, averages=averages, contributions=contributions, sent=sent)


def steps_of(compressor: Compressor, world_size: int, count: int) -> Iterator[Step]:
    """Yield exchanges of drawn gradients, one after the other."""
    ranks = Ranks(compressor, world_size)
    for step in range(count):
        yield ranks.step(drawn(step, world_size))


# Several of one shape, and sizes that no packing divides.
SHAPES: Mapping[str, tuple[int, ...]] = {
    "a": (40, 30),
    "b": (40, 30),
    "c": (40, 30),
    "vector": (1003,),
    "cube": (5, 7, 3),
    "scalar": (),
    "one": (1,),
    "empty": (0,),
}


def drawn(seed: int, world_size: int, dtype: torch.dtype = torch.float32) -> list[dict[str, Tensor]]:
    """Return gradients of every rank, about as large as each other, different in all elements."""
    numbers = torch.Generator().manual_seed(seed)
    return [
        {name: torch.randn(shape, generator=numbers).to(dtype) for name, shape in SHAPES.items()}
        for _ in range(world_size)
    ]
