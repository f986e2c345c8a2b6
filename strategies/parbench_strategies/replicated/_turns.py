"""Turns are the exchanges of a step that are waited for one by one, when their results are needed, and not all at once.

stepping thread   backward ── ready 0, 1, 2, 3 ──> next forward   land(3) layer 1   land(0) layer 2 ...
comm thread               ══ 0 ══╧══ 3 ══╧══ 1 ══╧══ 2 ══         one at a time, in the order of the ranks

With halves, a group's first half has a turn once the group is ready, and its second half once all first halves had one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import final

import torch

from parbench.api import CommThread, Mark, Ticket
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._layout import Lane
from parbench_strategies.replicated._order import Order


@final
class Turns:
    """The exchanges of one step.

    Args:
        lanes: its groups.
        order: which is next.
        exchanger: exchanges them, in `thread` alone.
        thread: takes the turns.
        halves: whether sums are first left on the ranks that made them, and shared out later.
    """

    def __init__(
        self, lanes: Sequence[Lane], order: Order, exchanger: Exchanger, thread: CommThread, *, halves: bool
    ) -> None:
        self._lanes = lanes
        self._order = order
        self._exchanger = exchanger
        self._thread = thread
        self._halves = halves
        self._tickets: deque[Ticket] = deque()
        self._landed: dict[int, Mark] = {}  # groups that are averaged once the communication stream is there
        self._sequence: list[int] = []

    @property
    def sequence(self) -> Sequence[int]:
        """The groups in the order in which they were exchanged so far."""
        return tuple(self._sequence)

    def ready(self, number: int) -> None:
        """Group `number` may have its turn."""
        self._order.ready(number)
        self._tickets.append(self._thread.submit(self._take))

    def all_ready(self) -> None:
        """No further group will be ready; called after the last one."""
        if self._halves:
            # The last to become ready is of the first layer, which the next forward needs first.
            for number in reversed(range(len(self._lanes))):
                self._tickets.append(self._thread.submit(partial(self._share, number)))

    def land(self, number: int) -> None:
        """Wait until group `number` is averaged.

        Raises:
            BaseException: whatever went wrong in a turn so far.
        """
        while number not in self._landed:
            self._tickets.popleft().wait()
        # On an accelerator the exchange may only be issued: what is computed from now on comes after it.
        if (mark := self._landed[number]) is not None:
            torch.cuda.current_stream().wait_event(mark)

    def land_all(self) -> None:
        """Wait for all groups."""
        while self._tickets:
            self._tickets.popleft().wait()

    # ---- in the communication thread

    def _take(self) -> None:
        number = self._order.next()
        self._sequence.append(number)
        if self._halves:
            self._exchanger.reduce_scatter(self._lanes[number])
        else:
            self._exchanger.exchange(number, self._lanes[number])
            self._end(number)

    def _share(self, number: int) -> None:
        self._exchanger.all_gather(self._lanes[number])
        self._end(number)

    def _end(self, number: int) -> None:
        self._landed[number] = self._thread.mark()
        if len(self._landed) == len(self._lanes):
            self._exchanger.end_step()
