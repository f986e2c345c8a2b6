"""A CommThread issues collectives in the order they are handed over, away from the thread that computes.

stepping thread   compute ─┬─ compute ─┬─ compute ──── wait a, b ── update
                    submit a        submit b               │
comm thread    ····sleeps··└═══ a ═════╧═══ b ═══··sleeps··┘
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from parbench.annotations import annotated

# A place in a thread's stream of work on an accelerator. On a CPU work is done when its call returns: None.
Mark = torch.cuda.Event | None


@final
class Ticket:
    """One job that was handed over; `wait` gives what became of it."""

    def __init__(self, job: Callable[[], None], watchers: Sequence[TorchDispatchMode], before: Mark) -> None:
        self.job = job
        self.watchers = watchers
        self.before = before
        self._after: Mark = None
        self._error: BaseException | None = None
        self._ended = threading.Event()

    def end(self, error: BaseException | None, after: Mark = None) -> None:
        """Let those who wait go on; called by the thread that ran the job or gave it up."""
        self._error, self._after = error, after
        self._ended.set()

    def wait(self) -> None:
        """Block until the job has run; what this thread computes from now on comes after what the job computed.

        Raises:
            BaseException: whatever the job raised, or a job before it, after which none is issued.
        """
        with annotated("wait"):
            self._ended.wait()
        if self._error is not None:
            raise self._error
        if self._after is not None:
            torch.cuda.current_stream().wait_event(self._after)


@final
class CommThread:
    """One thread that runs jobs one after the other, in the order they are handed over, and sleeps in between.

    What watches the thread that hands a job over (dispatch modes, such as a `ByteCounter`) watches the job too. On
    CUDA jobs run in a stream of their own, which begins after what the submitter's stream held at `submit`; tensors
    that a job uses must live until its ticket was waited for.

    Args:
        device: where the tensors of the jobs are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._tickets: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._broken: BaseException | None = None
        # Jobs block for as long as their peers take: a process that gives up must not wait for them.
        self._thread = threading.Thread(target=self._serve, name="parbench-comm", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Hand over a job and return at once.

        Raises:
            RuntimeError: the thread is closed.
        """
        if not self._thread.is_alive():
            raise RuntimeError("a job was handed to a communication thread that is closed; make a new one")
        ticket = Ticket(job, _watchers(), self.mark())
        self._tickets.put(ticket)
        return ticket

    def mark(self) -> Mark:
        """Return the place that the calling thread's stream has reached."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def follow(self, mark: Mark) -> None:
        """Let what the calling job does from now on come after `mark`."""
        if self._stream is not None and mark is not None:
            self._stream.wait_event(mark)

    def close(self) -> None:
        """Drop the jobs that have not begun, wait for the one that has and end the thread; again does nothing."""
        if self._broken is None:
            self._broken = RuntimeError("the communication thread was closed before this job was issued")
        self._tickets.put(None)
        self._thread.join()
        while not self._tickets.empty():
            if (ticket := self._tickets.get()) is not None:
                ticket.end(self._broken)

    def _serve(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # a thread's current device is its own
        while (ticket := self._tickets.get()) is not None:
            if self._broken is not None:
                ticket.end(self._broken)
                continue
            try:
                after = self._run(ticket)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting thread must know
                self._broken = error
                ticket.end(error)
            else:
                ticket.end(None, after)
            # Between jobs nothing of them is kept alive: a closure holds a trainer, and a trainer this thread.
            del ticket

    def _run(self, ticket: Ticket) -> Mark:
        with torch.no_grad(), torch.cuda.stream(self._stream), _watched_by(ticket.watchers):
            self.follow(ticket.before)
            ticket.job()
            return self.mark()


def _watchers() -> tuple[TorchDispatchMode, ...]:
    """Return the dispatch modes of the calling thread, outermost first."""
    return tuple(mode for mode in _get_current_dispatch_mode_stack() if not mode.is_infra_mode())


@contextlib.contextmanager
def _watched_by(modes: Sequence[TorchDispatchMode]) -> Iterator[None]:
    # Not entered a second time: what entering does besides, such as setting counts to zero, was done by their owner.
    for mode in modes:
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in modes:
            _pop_mode()
