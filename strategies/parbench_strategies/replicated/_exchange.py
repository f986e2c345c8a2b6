"""An Exchange averages the gradients of a step in a thread of its own, cycle by cycle, while backward goes on."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parbench.api import Comm, CommThread, Mark, RankContext, Ticket
from parbench_strategies.replicated._fusion import FusionBuffer
from parbench_strategies.replicated._negotiation import Control, GaveUpError, Report


@final
class Exchange:
    """Watches gradients become ready and averages those that are ready on all ranks.

    Args:
        parameters: whose gradients are averaged; the same on every rank.
        ctx: this rank, one of several.
        group: the ranks that take part.
        cycle_s: time between two looks at what is ready.
        capacity: bytes of the fusion buffer.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        ctx: RankContext,
        group: dist.ProcessGroup,
        cycle_s: float,
        capacity: int,
    ) -> None:
        self._parameters = parameters
        self._comm = ctx.comm
        self._cycle_s = cycle_s
        self._buffer = FusionBuffer(capacity, parameters)
        self._control = Control(group, f"horovod_like/{_same_for_all(ctx.comm, ctx.device)}")
        self._marks: dict[int, Mark] = {}  # of gradients that are ready, by when they became so
        self._unsaid: list[int] = []  # those of them that the other ranks do not know of yet
        self._complete = self._held = self._given_up = self._closed = False
        self._changed = threading.Condition()
        self._ticket: Ticket | None = None
        self._hooks = [
            p.register_post_accumulate_grad_hook(partial(self._arrived, k))  # type: ignore[no-untyped-call]
            for k, p in enumerate(parameters)
        ]
        self._thread = CommThread(ctx.device)

    def begin(self) -> None:
        """Begin a step, before its backward.

        Raises:
            RuntimeError: the last one was not finished.
        """
        if self._ticket is not None:
            raise RuntimeError("the last step failed, and the ranks may differ; close this trainer and make another")
        self._marks.clear()
        self._complete = False
        self._ticket = self._thread.submit(self._cycles)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep gradients to this rank while this context lasts: they are not whole yet."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def finish(self) -> None:
        """End a step: return once every gradient of the step is averaged."""
        if self._ticket is None:
            raise RuntimeError("finish without begin")
        with self._changed:
            # What earlier micro-batches gave and the last one did not has no hook that would have told.
            for index, parameter in enumerate(self._parameters):
                if parameter.grad is not None and index not in self._marks:
                    self._add(index)
            self._complete = True
            self._changed.notify_all()
        self._ticket.wait()
        self._ticket = None

    def close(self) -> None:
        """Give up a step that was not finished, end the thread and remove hooks and messages."""
        if self._closed:
            return
        self._closed = True
        for hook in self._hooks:
            hook.remove()
        with self._changed:
            self._given_up = True
            self._changed.notify_all()
        self._thread.close()
        self._control.close()

    # ---- in the threads of backward

    def _arrived(self, index: int, parameter: Tensor) -> None:
        if self._held or self._ticket is None:
            return
        with self._changed:
            if index in self._marks:
                raise RuntimeError("backward gave one parameter's gradient twice, but it may be on its way already")
            self._add(index)
            self._changed.notify_all()

    def _add(self, index: int) -> None:
        self._marks[index] = self._thread.mark()
        self._unsaid.append(index)

    # ---- in the thread of communication

    def _cycles(self) -> None:
        """Negotiate and reduce until all ranks have said that there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsaid or self._complete or self._given_up)
        finished = False
        while not finished:
            started_s = time.monotonic()
            if self._given_up:
                self._control.give_up()
                return
            try:
                reply = self._control.exchange(self._report(), lambda: self._given_up)
            except GaveUpError:
                continue
            self._average(reply.reduce)
            finished = reply.finished
            if not finished:
                self._sleep(started_s + self._cycle_s - time.monotonic())

    def _report(self) -> Report:
        with self._changed:
            ready, self._unsaid = self._unsaid, []
            return Report(ready=ready, complete=self._complete)

    def _average(self, indices: Sequence[int]) -> None:
        if not indices:
            return
        gradients = []
        for index in indices:
            parameter = self._parameters[index]
            if parameter.grad is None:  # this rank's share did not use it, another's did
                parameter.grad = torch.zeros_like(parameter)
            self._thread.follow(self._marks.get(index))
            gradients.append(parameter.grad)
        self._buffer.average(gradients, self._comm)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._given_up, max(0.0, seconds))


def _same_for_all(comm: Comm, device: torch.device) -> int:
    """Return a number that all ranks of `comm` share and no other exchange has."""
    drawn = torch.tensor(uuid.uuid4().int >> 66, device=device)
    return int(comm.broadcast(drawn))
