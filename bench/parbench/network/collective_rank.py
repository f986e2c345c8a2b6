"""One rank's part in measuring a collective: check, warm up, time back to back, count bytes, check again."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from parbench.errors import UsageError
from parbench.groups import Groups
from parbench.launch.messages import Collectives, CollectivesDone, Seat
from parbench.network import patterns
from parbench.network.algorithms import Algorithm, Native, OwnRing
from parbench.network.collectives import numel_of
from parbench.network.ring import Ring
from parbench.network.socket_bytes import queued_bytes

_POISON = 77
_OVER_SOCKETS = frozenset({"gloo"})


@final
class CollectiveRank:
    """Measures collectives in this rank, and keeps the rings it needs from one command to the next.

    Args:
        seat: this rank.
        groups: its process groups.
        say: told what is going on.
    """

    def __init__(self, seat: Seat, groups: Groups, say: Callable[[str], None]) -> None:
        self._seat, self._groups, self._say = seat, groups, say
        self._rings: dict[tuple[int, float], Ring] = {}

    def run(self, command: Collectives) -> CollectivesDone:
        """Carry out one command; ranks outside its group have nothing to say."""
        group = self._groups.first(command.ranks)
        if self._seat.rank >= command.ranks:
            return CollectivesDone(member=False)
        algorithm = self._algorithm(command, group)
        count = queued_bytes if command.algorithm == "ring" or self._seat.backend in _OVER_SOCKETS else _uncounted
        return measure(command, algorithm, group, self._seat.rank, torch.device(self._seat.device), self._say, count)

    def close(self) -> None:
        """Close the rings."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()

    def _algorithm(self, command: Collectives, group: dist.ProcessGroup) -> Algorithm:
        if command.algorithm == "native":
            return Native(group, self._seat.rank, command.ranks)
        if command.algorithm != "ring":
            raise UsageError(f"no algorithm named {command.algorithm!r}; known: native, ring")
        key = (command.ranks, command.alpha_s)
        if key not in self._rings:
            self._rings[key] = Ring.connect(
                distributed_c10d._get_default_store(),
                self._seat.rank,
                command.ranks,
                host=self._seat.network.address if self._seat.network else "127.0.0.1",
                timeout_s=self._seat.group_timeout_s,
                alpha_s=command.alpha_s,
                name=f"ring/{command.ranks}",
            )
        return OwnRing(self._rings[key])


def measure(
    command: Collectives,
    algorithm: Algorithm,
    group: dist.ProcessGroup,
    rank: int,
    device: torch.device,
    say: Callable[[str], None],
    count: Callable[[], int | None],
) -> CollectivesDone:
    """Measure one collective; every rank of `group` calls this.

    Args:
        command: what to measure.
        algorithm: what carries it out.
        group: for the barrier before the timing starts.
        rank: this rank in the group.
        device: where tensors are.
        say: told what is going on.
        count: returns the bytes this rank has sent so far, or None.
    """
    buffers = Buffers(command, rank, device)
    wrong = buffers.check(algorithm, salt=1)
    if gc.isenabled():
        gc.collect()
        gc.disable()  # nothing may stall an iteration
    buffers.quiet()
    for k in range(command.warm_up):
        say(f"{command.op} of {command.bytes} bytes, warm-up {k}")
        algorithm.run(command.op, buffers.given, buffers.result)
    _settled(device)
    dist.barrier(group=group)
    before = count()
    start_s = time.perf_counter()
    ends_s = []
    for k in range(command.iterations):
        algorithm.run(command.op, buffers.given, buffers.result)
        _settled(device)
        ends_s.append(time.perf_counter())
        say(f"{command.op} of {command.bytes} bytes, iteration {k}")
    after = count()
    sent = None if before is None or after is None else (after - before) / command.iterations
    again = buffers.check(algorithm, salt=2)  # on every rank, whatever this one saw before: it is a collective
    wrong = wrong or again
    return CollectivesDone(start_s=start_s, ends_s=tuple(ends_s), sent_bytes=sent, wrong=wrong)


@final
class Buffers:
    """What one rank puts in and gets out.

    Attributes:
        given: what it puts in.
        result: what it gets; the same tensor where the collective works in place.
    """

    def __init__(self, command: Collectives, rank: int, device: torch.device) -> None:
        self._op, self._rank, self._ranks = command.op, rank, command.ranks
        self._numel = numel_of(command.op, command.bytes, command.dtype, command.ranks)
        dtype: torch.dtype = getattr(torch, command.dtype)
        part = self._numel // command.ranks
        sizes = {"reduce_scatter": (self._numel, part), "all_gather": (part, self._numel)}
        ins, outs = sizes.get(command.op, (self._numel, self._numel))
        self.given = torch.zeros(ins, dtype=dtype, device=device)
        in_place = command.op in ("all_reduce", "broadcast")
        self.result = self.given if in_place else torch.zeros(outs, dtype=dtype, device=device)

    def quiet(self) -> None:
        """Make everything zero: however often sums are summed again, no number grows out of its type."""
        self.given.zero_()
        self.result.zero_()

    def check(self, algorithm: Algorithm, salt: int) -> str | None:
        """Run the collective once on a pattern; return what is wrong with the result, or None."""
        put_in = patterns.given(self._op, self._rank, self._ranks, self._numel, salt)
        if self.result is not self.given:
            self.result.fill_(_POISON)
        # Only the root's buffer counts in a broadcast.
        if self._op == "broadcast" and self._rank != 0:
            self.given.fill_(_POISON)
        else:
            self.given.copy_(torch.from_numpy(put_in))
        algorithm.run(self._op, self.given, self.result)
        got = self.result.cpu()
        wanted = torch.from_numpy(patterns.expected(self._op, self._rank, self._ranks, self._numel, salt)).to(got.dtype)
        return _difference(got, wanted, self._rank)


def _difference(got: Tensor, wanted: Tensor, rank: int) -> str | None:
    if torch.equal(got, wanted):
        return None
    differ = (got != wanted).nonzero().view(-1)
    at = int(differ[0])
    return (
        f"rank {rank}: {differ.numel()} of {wanted.numel()} elements differ; element {at} is {got[at].item():g}, "
        f"should be {wanted[at].item():g}"
    )


def _settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _uncounted() -> int | None:
    return None
