"""Together runs several ranks as threads of one process, which exchange through memory: enough to examine a compressor.

rank 0 ─ start(tensor) ─┐ all meet, each adds up    ┌─ sum
rank 1 ─ start(tensor) ─┘ the same in the same order └─ sum
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Final, TypeVar, cast, final

from torch import Tensor

from parbench.api import Channel, Collective, Comm, Handle, Paper, all_reduced, carriage
from parbench.compressor import Carriage

T = TypeVar("T")
_PATIENCE_S: Final = 20.0


@final
class Together:
    """Ranks that live for one piece of work at a time.

    Args:
        world_size: how many.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._brought: list[Tensor | None] = [None] * world_size
        self._meeting = threading.Barrier(world_size)

    def run(self, work: Callable[[int, Channel], T]) -> tuple[list[T], dict[str, Fraction]]:
        """Run `work` on every rank; return what each returned, and what rank 0 sent: operation -> logical bytes."""
        sent: dict[str, Fraction] = {}
        self._meeting.reset()

        def ranked(rank: int) -> T:
            adding = _Adding(self, sent if rank == 0 else {})
            channel = Channel(cast(Comm, _Rank(rank, self, adding.sent_bytes)), adding)
            try:
                return work(rank, channel)
            except BaseException:
                self._meeting.abort()  # the others would wait for this rank
                raise

        with ThreadPoolExecutor(self.world_size) as pool:
            futures = [pool.submit(ranked, rank) for rank in range(self.world_size)]
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
            raise error
        return [future.result() for future in futures], sent

    def carriage(self) -> Carriage:
        """Return what messages cost here."""
        return carriage(_Adding(self, {}), 0, self.world_size)

    def share(self, rank: int, tensor: Tensor) -> list[Tensor]:
        """Return what every rank brought, once all have."""
        self._brought[rank] = tensor
        self._meeting.wait(_PATIENCE_S)
        everyone = [one for one in self._brought if one is not None]
        self._meeting.wait(_PATIENCE_S)
        return everyone


@final
class _Adding(Collective):
    """Adds up in the order of ranks."""

    name = "adding"
    paper = Paper("none", "https://example.org")

    def __init__(self, together: Together, sent_bytes: dict[str, Fraction]) -> None:
        self._together = together
        self.sent_bytes = sent_bytes

    def start(self, flat_N: Tensor, comm: Comm) -> Handle:
        first, *others = self._together.share(comm.rank, flat_N.clone())
        _note(self.sent_bytes, self.sent(flat_N.numel(), flat_N.element_size(), comm.rank, comm.world_size))
        flat_N.copy_(first)
        for other in others:
            flat_N.add_(other)
        return Handle(None, flat_N)

    def sent(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        return {"all_reduce": all_reduced(elements * element_bytes, world_size)}


@final
class _Rank:
    """What a channel asks of a Comm."""

    def __init__(self, rank: int, together: Together, sent_bytes: dict[str, Fraction]) -> None:
        self.rank = rank
        self.world_size = together.world_size
        self._together = together
        self._sent_bytes = sent_bytes

    def all_gather_flat_async(self, whole: Tensor, shard: Tensor) -> Handle:
        """Fill `whole` with every rank's `shard`."""
        parts = self._together.share(self.rank, shard.clone())
        size = shard.numel() * shard.element_size()
        _note(self._sent_bytes, {"all_gather": Fraction((self.world_size - 1) * size)})
        for place, part in zip(whole.view(self.world_size, -1), parts, strict=True):
            place.copy_(part)
        return Handle(None, whole)


def _note(total: dict[str, Fraction], sent: Mapping[str, Fraction]) -> None:
    for op, size in sent.items():
        total[op] = total.get(op, Fraction(0)) + size
