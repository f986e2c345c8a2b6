"""An Order says which group is exchanged next: as they become ready, or the most urgent one, which rank 0 chooses.

Ranks must start the same group, but do not see their gradients at the same time: whoever is not rank 0 waits until it
has what rank 0 chose. Choices go through the process group's store, which is not behind a shaped link.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

import torch.distributed as dist

_FIRST_PAUSE_S: Final = 50e-6
_LONGEST_PAUSE_S: Final = 0.5e-3


class Order(Protocol):
    """The order of one step's groups; `ready` is called by one thread, `next` by another."""

    def ready(self, number: int) -> None:
        """Group `number` may be exchanged."""

    def next(self) -> int:
        """Return which group is exchanged now; called once for each that is ready."""


@final
class AsReady:
    """The order in which groups become ready, which must be the same on all ranks."""

    def __init__(self) -> None:
        self._ready: deque[int] = deque()

    def ready(self, number: int) -> None:
        self._ready.append(number)

    def next(self) -> int:
        return self._ready.popleft()


@final
class Chosen:
    """Of the groups that are ready on rank 0, the one of the least priority number; the plan's order among equals.

    Args:
        priorities: of all groups of the step.
        board: where rank 0 says what it chose.
        step: number of the step.
    """

    def __init__(self, priorities: Sequence[int], board: Board, step: int) -> None:
        self._priorities = priorities
        self._board = board
        self._step = step
        self._ready: list[tuple[int, int]] = []
        self._taken = 0
        self._changed = threading.Condition()

    def ready(self, number: int) -> None:
        with self._changed:
            heapq.heappush(self._ready, (self._priorities[number], number))
            self._changed.notify()

    def next(self) -> int:
        if self._board.leads:
            with self._changed:
                number = heapq.heappop(self._ready)[1]
            self._board.choose(self._step, number)
            return number
        number = self._board.chosen(self._step, self._taken)
        self._taken += 1
        entry = (self._priorities[number], number)
        with self._changed:
            while entry not in self._ready:
                self._board.check()
                self._changed.wait(timeout=0.1)
            self._ready.remove(entry)
            heapq.heapify(self._ready)
        return number


@final
class Board:
    """Where rank 0 writes down its choices: one key of the store per step, which is gone a step later.

    Attributes:
        leads: whether this is rank 0.

    Args:
        group: the ranks.
        name: of the keys; nobody else's.
    """

    def __init__(self, group: dist.ProcessGroup, name: str) -> None:
        self.leads = group.rank() == 0
        self._ranks = group.size()
        self._store = group.get_group_store()
        self._name = name
        self._said: list[int] = []
        self._step = -1
        self._known: list[str] = []
        self._ended = threading.Event()

    def choose(self, step: int, number: int) -> None:
        """Write down the next choice of a step; called by rank 0."""
        if step != self._step:
            self._said = []
            # All ranks were in the exchanges of the step before, so that none still reads of the one before that.
            if step > 1:
                self._store.delete_key(self._key(step - 2))
            self._step = step
        self._said.append(number)
        self._store.set(self._key(step), " ".join(map(str, self._said)))

    def chosen(self, step: int, place: int) -> int:
        """Return choice number `place` of a step once it is written down.

        Raises:
            TimeoutError: it was not in the time that the store gives its clients.
            RuntimeError: the board was closed.
        """
        if step != self._step:
            self._known, self._step = [], step
        if place >= len(self._known):
            self._await(step, place)
        return int(self._known[place])

    def check(self) -> None:
        """Raise if the board was closed.

        Raises:
            RuntimeError: it was.
        """
        if self._ended.is_set():
            raise RuntimeError("the order of groups was closed before all of them were exchanged")

    def end(self) -> None:
        """Let whoever waits give up, and remove what was written once every rank has come here; again does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        # The store may be gone already, with the launcher that served it.
        with contextlib.suppress(RuntimeError):
            ended = f"{self._name}/ended"
            if self._store.add(ended, 1) == self._ranks:
                for key in (ended, *(self._key(step) for step in (self._step - 1, self._step) if step >= 0)):
                    self._store.delete_key(key)

    def _await(self, step: int, place: int) -> None:
        key, pause_s = self._key(step), _FIRST_PAUSE_S
        timeout_s: float = self._store.timeout.total_seconds()  # type: ignore[attr-defined] # the stubs lack it
        deadline_s = time.monotonic() + timeout_s
        while True:
            # A client that waits inside the store keeps all others of its process waiting: it asks first, but for keys
            # that it has seen.
            if self._known or self._store.check([key]):
                self._known = self._store.get(key).decode().split()
                if place < len(self._known):
                    return
            self.check()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"rank 0 did not say in {timeout_s:g} s which group is next")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _key(self, step: int) -> str:
        return f"{self._name}/{step}"


Ordering = Callable[[Sequence[int]], Order]
