"""A Channel carries the messages of compressed gradients: averaged by a collective or gathered, packed, and timed.

start_mean([a, b])     |a|b| in one message ──collective──> mean of |a|b|
start_gather([a, b])   |a|b| in one message ──all-gather──> |a|b| of rank 0, |a|b| of rank 1, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from parbench.collective import Collective
from parbench.comm import Comm
from parbench.compressor import Carriage
from parbench.stopwatch import Stopwatch
from parbench.traffic import shared_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long messages are whose length follows the numbers in them.

    Attributes:
        counts: `[rank][message][part]`, in elements.
        sizes: `[message][part]`, bytes of an element.
    """

    counts: Sequence[Sequence[Sequence[int]]]
    sizes: Sequence[Sequence[int]]

    def longest(self, *messages: int) -> int:
        """Return the bytes of some messages together, all if none is named, of the rank whose are longest."""
        chosen = messages or range(len(self.sizes))
        return max(sum(self._bytes(counts, k) for k in chosen) for counts in self.counts)

    def only(self, messages: Sequence[int]) -> Lengths:
        """Return the lengths of some messages."""
        counts = [[of_rank[k] for k in messages] for of_rank in self.counts]
        return Lengths(counts=counts, sizes=[self.sizes[k] for k in messages])

    def _bytes(self, counts: Sequence[Sequence[int]], message: int) -> int:
        return sum(count * size for count, size in zip(counts[message], self.sizes[message], strict=True))


@final
class Channel:
    """What a compressor exchanges messages with; one thread at a time uses it.

    Attributes:
        rank: this rank.
        world_size: ranks that exchange.
    """

    def __init__(self, comm: Comm, collective: Collective, stopwatch: Stopwatch | None = None) -> None:
        self._comm = comm
        self._collective = collective
        self._stopwatch = stopwatch or Stopwatch()
        self.rank = comm.rank
        self.world_size = comm.world_size

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the averages of tensors over all ranks; those of one type are one message."""
        return self.start_mean(tensors)()

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums of tensors over all ranks; those of one type are one message."""
        return self.start_sum(tensors)()

    def gather(self, messages: Sequence[Sequence[Tensor]]) -> list[list[list[Tensor]]]:
        """Return every rank's parts of each message, `[message][rank][part]`; all are one message."""
        return self.start_gather(messages)()

    def start_mean(self, tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """Begin to average, and return what waits for the averages; `tensors` stay as they are."""
        return self._start_adding(tensors, mean=True)

    def start_sum(self, tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """Begin to add up, and return what waits for the sums; `tensors` stay as they are."""
        return self._start_adding(tensors, mean=False)

    def start_gather(self, messages: Sequence[Sequence[Tensor]]) -> Callable[[], list[list[list[Tensor]]]]:
        """Begin to gather, and return what waits for the parts; their shapes and types are the same on every rank."""
        parts = [part.contiguous() for message in messages for part in message]
        own_M = _packed(parts)
        all_RM = own_M.new_empty(self.world_size * own_M.numel())
        flight = self._stopwatch.start(lambda: self._comm.all_gather_flat_async(all_RM, own_M))

        def finish() -> list[list[list[Tensor]]]:
            self._stopwatch.wait(flight)
            by_rank = [_unpacked(one_M, parts) for one_M in all_RM.view(self.world_size, -1)]
            return _by_message(by_rank, messages)

        return finish

    def lengths(self, messages: Sequence[Sequence[Tensor]]) -> Lengths:
        """Return how long every rank's parts are, where they differ in length: 4 bytes a part."""
        device = messages[0][0].device
        own = [
            torch.tensor([part.numel() for part in message], dtype=torch.int32, device=device) for message in messages
        ]
        by_rank = zip(*self.gather([[one] for one in own]), strict=True)
        counts = [[[int(count) for count in parts.tolist()] for (parts,) in of_rank] for of_rank in by_rank]
        return Lengths(counts=counts, sizes=[[part.element_size() for part in message] for message in messages])

    def start_gather_varied(
        self, messages: Sequence[Sequence[Tensor]], lengths: Lengths
    ) -> Callable[[], list[list[list[Tensor]]]]:
        """Begin to gather flat parts that differ in length, each rank's padded to the longest rank's.

        Args:
            messages: their parts are one-dimensional and of the same types on every rank.
            lengths: of the same messages.
        """
        parts = [part.contiguous() for message in messages for part in message]
        own_M = torch.zeros(lengths.longest(), dtype=torch.uint8, device=parts[0].device)
        packed = _packed(parts)
        own_M[: packed.numel()] = packed
        all_RM = own_M.new_empty(self.world_size * own_M.numel())
        flight = self._stopwatch.start(lambda: self._comm.all_gather_flat_async(all_RM, own_M))

        def finish() -> list[list[list[Tensor]]]:
            self._stopwatch.wait(flight)
            by_rank = []
            for one_M, of_rank in zip(all_RM.view(self.world_size, -1), lengths.counts, strict=True):
                counts = [count for message in of_rank for count in message]
                like = [part.new_empty(count) for part, count in zip(parts, counts, strict=True)]
                by_rank.append(_unpacked(one_M, like))
            return _by_message(by_rank, messages)

        return finish

    def _start_adding(self, tensors: Sequence[Tensor], *, mean: bool) -> Callable[[], list[Tensor]]:
        waits = {
            dtype: self._start_adding_alike([tensor for tensor in tensors if tensor.dtype is dtype], mean=mean)
            for dtype in dict.fromkeys(tensor.dtype for tensor in tensors)
        }

        def finish() -> list[Tensor]:
            found = {dtype: iter(wait()) for dtype, wait in waits.items()}
            return [next(found[tensor.dtype]) for tensor in tensors]

        return finish

    def _start_adding_alike(self, tensors: Sequence[Tensor], *, mean: bool) -> Callable[[], list[Tensor]]:
        # A copy in any case: what was sent is this rank's contribution, which may be asked for later.
        # Half precision ends at 65504: a sum may pass that where the average does not.
        first = mean and tensors[0].dtype is torch.float16
        flat_N = self._divided(tensors) if first else torch.cat([tensor.reshape(-1) for tensor in tensors])
        flight = self._stopwatch.start(lambda: self._collective.start(flat_N, self._comm))

        def finish() -> list[Tensor]:
            self._stopwatch.wait(flight)
            if mean and not first:
                flat_N.div_(self.world_size)
            parts = torch.split(flat_N, [tensor.numel() for tensor in tensors])
            return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

        return finish

    def _divided(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors of one type in one piece, divided by the number of ranks: copied and divided in one pass."""
        counts = [tensor.numel() for tensor in tensors]
        flat_N = tensors[0].new_empty(sum(counts))
        for part, tensor in zip(torch.split(flat_N, counts), tensors, strict=True):
            torch.div(tensor.reshape(-1), self.world_size, out=part)
        return flat_N


def carriage(collective: Collective, rank: int, world_size: int, *, halves: bool = False) -> Carriage:
    """Return what messages of `rank` cost where averages go by `collective`, or by its two halves."""
    averaged = collective.sent_in_halves if halves else collective.sent

    def gathered(size: int) -> Mapping[str, Fraction]:
        return {"all_gather": shared_out(size * world_size, world_size)}

    return Carriage(
        averaged=lambda elements, element_bytes: averaged(elements, element_bytes, rank, world_size),
        gathered=gathered,
        world_size=world_size,
    )


def _packed(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.view(-1).view(torch.uint8) for part in parts])


def _by_message(by_rank: Sequence[Sequence[Tensor]], messages: Sequence[Sequence[Tensor]]) -> list[list[list[Tensor]]]:
    found, first = [], 0
    for message in messages:
        found.append([list(one[first : first + len(message)]) for one in by_rank])
        first += len(message)
    return found


def _unpacked(bytes_M: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that one rank packed, each as one of `like` in shape and type."""
    found, start = [], 0
    for tensor in like:
        stop = start + tensor.numel() * tensor.element_size()
        part = bytes_M[start:stop]
        # A view as another type must begin at a multiple of its size.
        aligned = part if part.storage_offset() % tensor.element_size() == 0 else part.clone()
        found.append(aligned.view(tensor.dtype).view(tensor.shape))
        start = stop
    return found
