"""A Loader has batches made ahead by workers, and knows how long every step waited for its own.

worker 0    make 0      make 2        make 4
worker 1       make 1        make 3        make 5
steps               | 0 |    | 1 || 2 |      | 3 |        what stands between two steps is data time
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, final

from parbench.job import Batch
from parbench.record import Series

_AHEAD: Final = 2  # batches that each worker has ready, as torch's DataLoader does


@final
class Loader:
    """Gives the batch of any step, and makes those after it meanwhile.

    Workers are threads: the ranks of a launch may not have processes of their own, and tensors are made outside of
    Python's lock. So `make` must be a function of the step alone, whatever thread asks.

    Args:
        make: step -> global batch.
        workers: threads; 0 makes each batch when it is asked for.
        delay_s: added to the making of each, which makes a slow source of it.
        pin: whether batches are put into pinned memory, from where a GPU copies without waiting.
    """

    def __init__(self, make: Callable[[int], Batch], workers: int, delay_s: float = 0.0, *, pin: bool = False) -> None:
        self._make = make
        self._workers = workers
        self._delay_s = delay_s
        self._pin = pin
        self._pool = ThreadPoolExecutor(workers, "parbench-data") if workers else None
        self._ahead: dict[int, Future[Batch]] = {}
        self._waited_s: list[float] = []
        self._until: int | None = None

    def __call__(self, step: int) -> Batch:
        """Return the batch of `step`."""
        began_s = time.perf_counter()
        batch = self._made(step) if self._pool is None else self._taken(self._pool, step)
        self._waited_s.append(time.perf_counter() - began_s)
        return batch

    def begin(self, until: int | None = None) -> None:
        """Forget how long steps waited so far.

        Args:
            until: the step before which steps end for now: no batch is made beyond it, which would be work in the time
                of others, and ready for nothing when this goes on.
        """
        self._waited_s = []
        self._until = until

    def waited(self) -> Series:
        """Return how long each step since `begin` waited for its batch."""
        source = f"time in which the step waited for its batch, {self._workers or 'no'} workers"
        return Series(name="data_s_per_step", unit="s", better="lower", values=tuple(self._waited_s), source=source)

    def close(self) -> None:
        """End the workers."""
        self._forget()
        if self._pool is not None:
            self._pool.shutdown()

    def _taken(self, pool: ThreadPoolExecutor, step: int) -> Batch:
        if step not in self._ahead:
            self._forget()  # another order than the last
        beyond = step + 1 + _AHEAD * self._workers
        for ahead in range(step, beyond if self._until is None else max(step + 1, min(beyond, self._until))):
            if ahead not in self._ahead:
                self._ahead[ahead] = pool.submit(self._made, ahead)
        return self._ahead.pop(step).result()

    def _forget(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead = {}

    def _made(self, step: int) -> Batch:
        if self._delay_s:
            time.sleep(self._delay_s)
        batch = self._make(step)
        return batch.pinned() if self._pin else batch
