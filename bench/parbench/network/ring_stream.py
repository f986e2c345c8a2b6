"""A ring stream carries one collective: bytes leave for the next rank as soon as those they depend on have arrived.

previous ══> header │ part │ part │ part          each block is added to this rank's own term as it arrives,
                        └──────┬──────┐           and leaves at once: a hop never waits for a whole part
next     <══ header │ part │ part │ part
"""

from __future__ import annotations

import select
import time
from typing import final

import torch

from parbench.network.ring_errors import gone, stalled
from parbench.network.ring_link import Neighbour
from parbench.network.ring_parts import Work
from parbench.network.ring_receive import BLOCK_BYTES, Receiver
from parbench.network.ring_send import Sender

_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | select.POLLRDHUP


@final
class RingStream:
    """The two connections of a rank, and what has passed them.

    Attributes:
        sent_bytes: given to the kernel for the next rank, headers included.
        received_bytes: taken from it.
        timeout_s: seconds without a byte after which a collective fails.
    """

    def __init__(self, previous: Neighbour, following: Neighbour, timeout_s: float) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._previous, self._next = previous, following
        self.timeout_s = timeout_s
        self._scratch = torch.empty(BLOCK_BYTES, dtype=torch.uint8)
        self._poller = select.poll()
        self._watched: tuple[int, int] = (0, 0)

    def run(self, work: Work) -> None:
        """Carry out one collective.

        Raises:
            PeerGone: a neighbour closed its connection first.
            PeerStalled: nothing moved until the deadline.
        """
        sender = Sender(work, self._next)
        receiver = Receiver(work, self._previous, self._scratch)
        moved_s = time.monotonic()
        try:
            while not (sender.done and receiver.done):
                before = sender.sent_bytes + receiver.received_bytes
                receiver.step()
                sender.step(work.ready_bytes + receiver.usable_bytes)
                if sender.sent_bytes + receiver.received_bytes != before:
                    moved_s = time.monotonic()
                elif not self._wait(sender, receiver, work) and time.monotonic() - moved_s > self.timeout_s:
                    late = self._previous if not receiver.done else self._next
                    raise stalled(late.rank, late.address, work.title, self.timeout_s)
        finally:
            self.sent_bytes += sender.sent_bytes
            self.received_bytes += receiver.received_bytes

    def _wait(self, sender: Sender, receiver: Receiver, work: Work) -> bool:
        """Sleep until a connection can be used again; return whether one can."""
        # A rank that waits for the one before it still sees the one after it go.
        after = (select.POLLOUT if sender.blocked else select.POLLRDHUP) if not sender.done else 0
        self._watch(0 if receiver.done else select.POLLIN, after)
        events = dict(self._poller.poll(min(1.0, self.timeout_s) * 1e3))
        if events.get(self._next.socket.fileno(), 0) & _GONE:
            raise gone(self._next.rank, self._next.address, work.title)
        receiver.readable = self._previous.socket.fileno() in events
        sender.blocked = sender.blocked and self._next.socket.fileno() not in events
        return bool(events)

    def _watch(self, before: int, after: int) -> None:
        """Set the events to wait for; none at all takes a connection out, whose end would else wake us for ever."""
        if (before, after) == self._watched:
            return
        for sock, wanted, watched in (
            (self._previous.socket, before, self._watched[0]),
            (self._next.socket, after, self._watched[1]),
        ):
            if wanted:
                self._poller.register(sock, wanted)
            elif watched:
                self._poller.unregister(sock)
        self._watched = (before, after)

    def end(self) -> None:
        """End both connections, from any thread: a collective under way fails at once."""
        self._previous.end()
        self._next.end()

    def close(self) -> None:
        """Release both connections; no collective may be under way."""
        self._previous.close()
        self._next.close()
