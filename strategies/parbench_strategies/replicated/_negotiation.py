"""Negotiation is how ranks agree on what to all-reduce, and in which order: each says what is ready, rank 0 answers.

One cycle:   rank 1 ──report──> rank 0 ──reply──> rank 1      n - 1 reports, n - 1 replies, through the group's store
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch.distributed as dist

from parbench.api import awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one rank says in a cycle.

    Attributes:
        ready: gradients that have become ready since its last report, in that order.
        complete: whether it will have no others in this step.
        gone: whether it gives up the step.
    """

    ready: Sequence[int] = ()
    complete: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What rank 0 answers to all of them.

    Attributes:
        reduce: gradients that are ready everywhere, or missing for good where they are not, in the order to use.
        finished: whether these are the last of the step.
        gone: the rank that gives up the step, if any does.
    """

    reduce: Sequence[int] = ()
    finished: bool = False
    gone: int | None = None


@final
class Coordinator:
    """Turns the reports of a cycle into a reply; it remembers what is ready on some ranks only."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._ready_on: dict[int, set[int]] = {}
        self._complete: set[int] = set()

    def reply_to(self, reports: Sequence[Report]) -> Reply:
        """Return the reply to one report of every rank, in rank order."""
        for rank, report in enumerate(reports):
            if report.gone:
                return Reply(gone=rank)
            for index in report.ready:
                self._ready_on.setdefault(index, set()).add(rank)
            if report.complete:
                self._complete.add(rank)
        agreed = tuple(k for k, ranks in self._ready_on.items() if len(ranks | self._complete) == self._world_size)
        for index in agreed:
            del self._ready_on[index]
        finished = len(self._complete) == self._world_size
        if finished:
            self._complete.clear()
        return Reply(reduce=agreed, finished=finished)


class GaveUpError(Exception):
    """This rank gives up its step, and its peers do not answer."""


@final
class Control:
    """This rank's end of the negotiation; one thread at a time uses it.

    Messages are keys of the process group's key-value store, removed once read. Horovod gathers and broadcasts them
    with MPI or gloo; here that would be collectives among those that are counted, and NCCL has none for the host.
    (The store's queues would be shorter to write, but a client that waited for one is woken by it ever after.)

    Args:
        group: the ranks that take part.
        name: of the keys; the same on all of them, and nobody else's.
    """

    def __init__(self, group: dist.ProcessGroup, name: str) -> None:
        self._rank, self._world_size = group.rank(), group.size()
        self._store = group.get_group_store()
        self._name = name
        self._cycle = 0
        self._coordinator = Coordinator(self._world_size)

    def exchange(self, report: Report, given_up: Callable[[], bool]) -> Reply:
        """Take part in one cycle and return what was agreed.

        Args:
            report: what this rank has to say.
            given_up: asked now and then while waiting for others.

        Raises:
            RuntimeError: another rank gave up the step.
            GaveUpError: this one did, and nobody answers.
            TimeoutError: a rank said nothing for as long as a collective may take.
        """
        reply = self._coordinate(report, given_up) if self._rank == 0 else self._ask(report, given_up)
        if reply.gone is not None:
            raise RuntimeError(f"rank {reply.gone} gave up this step, so that it cannot be finished; see what it says")
        return reply

    def _coordinate(self, report: Report, given_up: Callable[[], bool]) -> Reply:
        keys = [self._report_key(self._cycle, rank) for rank in range(1, self._world_size)]
        reply = self._coordinator.reply_to([report, *(_report_of(text) for text in self._read(keys, given_up))])
        self._say(reply)
        # Whoever has reported in this cycle has read the reply of the last.
        for key in (*keys, self._reply_key(self._cycle - 1)):
            self._store.delete_key(key)
        self._cycle += 1
        return reply

    def _ask(self, report: Report, given_up: Callable[[], bool]) -> Reply:
        self._tell(report)
        self._cycle += 1
        (text,) = self._read([self._reply_key(self._cycle - 1)], given_up)
        return _reply_of(text)

    def give_up(self) -> None:
        """Tell the others that this rank will not finish the step."""
        if self._rank == 0:
            self._say(Reply(gone=0))
        else:
            self._tell(Report(gone=True))

    def close(self) -> None:
        """Remove what is left in the store, once every rank has come here."""
        # The store may be gone already, with the launcher that served it.
        with contextlib.suppress(RuntimeError):
            if self._store.add(f"{self._name}/closed", 1) < self._world_size:
                return
            # Wherever a step failed, ranks are at most one cycle apart, and a reply lives for one more.
            for cycle in range(self._cycle - 2, self._cycle + 2):
                for rank in range(1, self._world_size):
                    self._store.delete_key(self._report_key(cycle, rank))
                self._store.delete_key(self._reply_key(cycle))
            self._store.delete_key(f"{self._name}/closed")

    def _tell(self, report: Report) -> None:
        message = json.dumps([list(report.ready), report.complete, report.gone])
        self._store.set(self._report_key(self._cycle, self._rank), message)

    def _say(self, reply: Reply) -> None:
        message = json.dumps([list(reply.reduce), reply.finished, reply.gone])
        self._store.set(self._reply_key(self._cycle), message)

    def _read(self, keys: Sequence[str], given_up: Callable[[], bool]) -> list[bytes]:
        def stop_if_given_up() -> None:
            if given_up():
                raise GaveUpError

        return awaited(self._store, keys, stop_if_given_up) if keys else []

    def _report_key(self, cycle: int, rank: int) -> str:
        return f"{self._name}/{cycle}/report/{rank}"

    def _reply_key(self, cycle: int) -> str:
        return f"{self._name}/{cycle}/reply"


def _report_of(text: bytes) -> Report:
    ready, complete, gone = json.loads(text)
    return Report(ready=tuple(ready), complete=complete, gone=gone)


def _reply_of(text: bytes) -> Reply:
    reduce, finished, gone = json.loads(text)
    return Reply(reduce=tuple(reduce), finished=finished, gone=gone)
