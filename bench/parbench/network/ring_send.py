"""A sender gives the kernel what may be sent of one collective, in as few calls as it takes."""

from __future__ import annotations

from collections import deque
from typing import final

from parbench.network.ring_errors import gone
from parbench.network.ring_link import Neighbour
from parbench.network.ring_parts import Work

_MOST_BUFFERS = 16  # of one call; the kernel takes 1024


@final
class Sender:
    """What is left to send.

    Attributes:
        sent_bytes: given to the kernel.
        blocked: it took less than it was offered.
    """

    def __init__(self, work: Work, following: Neighbour) -> None:
        self.sent_bytes = 0
        self.blocked = False
        self._work, self._next = work, following
        self._left = deque(view for view in work.outgoing if view.nbytes)
        self._total_bytes = sum(view.nbytes for view in self._left)

    @property
    def done(self) -> bool:
        """Whether everything was sent."""
        return self.sent_bytes == self._total_bytes

    def step(self, allowed_bytes: int) -> None:
        """Give the kernel as much of the first `allowed_bytes` as it takes."""
        while not self.blocked and (room := min(allowed_bytes, self._total_bytes) - self.sent_bytes) > 0:
            views, offered = [], 0
            for view in self._left:
                views.append(view[: room - offered])
                offered += views[-1].nbytes
                if offered == room or len(views) == _MOST_BUFFERS:
                    break
            try:
                taken = self._next.socket.sendmsg(views)
            except BlockingIOError:
                taken = 0
            except OSError as error:
                raise gone(self._next.rank, self._next.address, self._work.title) from error
            self.blocked = taken < offered
            self._advance(taken)

    def _advance(self, taken: int) -> None:
        self.sent_bytes += taken
        while taken:
            view = self._left.popleft()
            if view.nbytes > taken:
                self._left.appendleft(view[taken:])
            taken -= min(taken, view.nbytes)
