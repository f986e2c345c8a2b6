"""A receiver takes in what arrives of one collective, adds it block by block, and counts what may be passed on."""

from __future__ import annotations

from collections import deque
from typing import final

import torch
from torch import Tensor

from parbench.network.ring_errors import gone
from parbench.network.ring_link import Neighbour
from parbench.network.ring_parts import Add, Put, Work

# Large enough that a system call and an addition cost little per byte, small enough to stay in a core's cache.
BLOCK_BYTES = 256 * 1024
_LONG_BYTES = 16 * 1024


@final
class Receiver:
    """What is left to receive.

    Attributes:
        received_bytes: taken from the kernel, the header included.
        usable_bytes: of the parts, complete and added: they may be passed on.
        readable: there may be more to take.
    """

    def __init__(self, work: Work, previous: Neighbour, scratch: Tensor) -> None:
        self.received_bytes = 0
        self.usable_bytes = 0
        self.readable = True
        self._work, self._previous, self._scratch, self._landing = work, previous, scratch, scratch.numpy().data
        self._header_left = work.header
        self._parts = deque(part for part in work.incoming if part.nbytes)
        self._at = 0  # bytes of the first part that are complete
        self._filled = 0  # bytes of its next block, in the landing place

    @property
    def done(self) -> bool:
        """Whether everything has arrived."""
        return not self._parts and not self._header_left.nbytes

    def step(self) -> None:
        """Take what has arrived, as far as one block, so that what it allows can leave before the next one."""
        while self.readable and not self.done:
            target = self._target()
            try:
                taken = self._previous.socket.recv_into(target)
            except BlockingIOError:
                self.readable = False
                return
            except OSError as error:
                raise gone(self._previous.rank, self._previous.address, self._work.title) from error
            if taken == 0:
                raise gone(self._previous.rank, self._previous.address, self._work.title)
            self.received_bytes += taken
            # After a short message there is rarely another one: asking costs as much as waiting for it.
            more = taken >= _LONG_BYTES or bool(self._header_left.nbytes)
            self.readable = more and taken == target.nbytes
            if self._advance(taken):
                return

    def _target(self) -> memoryview:
        if self._header_left.nbytes:
            return self._header_left
        part = self._parts[0]
        if isinstance(part, Put):
            return part.target[self._at : self._at + BLOCK_BYTES]
        return self._landing[self._filled : self._block_bytes(part)]

    def _block_bytes(self, part: Add) -> int:
        return min(BLOCK_BYTES, part.nbytes - self._at)

    def _advance(self, taken: int) -> bool:
        """Account for `taken` bytes; return whether there is more to pass on."""
        if self._header_left.nbytes:
            self._header_left = self._header_left[taken:]
            if not self._header_left.nbytes:
                self._work.check()
            return False
        part = self._parts[0]
        if isinstance(part, Add):
            self._filled += taken
            if self._filled < (block := self._block_bytes(part)):
                return False
            self._add(part, block)
            taken, self._filled = block, 0
        self._at += taken
        self.usable_bytes += taken
        if self._at == part.nbytes:
            self._parts.popleft()
            self._at = 0
        return True

    def _add(self, part: Add, block: int) -> None:
        arrived = self._scratch[:block].view(part.own.dtype)
        if block == part.nbytes:
            torch.add(part.own, arrived, out=part.result)
            return
        size = arrived.element_size()
        first, count = self._at // size, block // size
        torch.add(part.own.narrow(0, first, count), arrived, out=part.result.narrow(0, first, count))
