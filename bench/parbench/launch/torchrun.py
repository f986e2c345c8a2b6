"""Ranks that torchrun has started: rank 0 leads the sweep and works too, the others carry out what it says.

    rank 0    command ──> store ──> its own part ──> replies of all
    rank k    store ──> its part ──> reply ──> store

Repeats are fresh launches, which torchrun alone can give: one `torchrun` is one launch.
"""

from __future__ import annotations

import atexit
import datetime
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import final

import torch.distributed as dist

from parbench.heartbeat import Heartbeat
from parbench.launch.elastic import TorchrunSeat
from parbench.launch.failure import RankLost, RanksStuck, Stopped, follows_from_a_peer
from parbench.launch.messages import (
    Clear,
    Command,
    Leave,
    Raised,
    Ready,
    Reply,
    Seat,
    decode_command,
    decode_pulse,
    decode_reply,
    encode,
)
from parbench.launch.place import Placement
from parbench.launch.ranks import Ranks
from parbench.launch.stopping import StopRequest
from parbench.launch.stores import Store, under
from parbench.rank import Rank
from parbench.record import Failure
from parbench.worker import device_name, join, raised

_LONG = datetime.timedelta(days=7)
_FOLLOWERS_S = 3.0
_OVER = "over"


@final
class TorchrunRanks(Ranks):
    """The ranks of a torchrun launch; use `start` in every one of them."""

    kind = "torchrun"

    def __init__(self, seat: TorchrunSeat, store: Store, rank: Rank, stop: StopRequest, timeout_s: float) -> None:
        self.world_size = seat.world_size
        self.device_names: tuple[str, ...] = ()
        self.ready_s: float | None = None
        self._seat = seat
        self._store = store
        self._rank = rank
        self._stop = stop
        self._timeout_s = timeout_s
        self._calls = 0
        self._lost: RankLost | RanksStuck | None = None

    @staticmethod
    def start(
        seat: TorchrunSeat,
        placement: Placement,
        *,
        threads: int,
        timeout_s: float,
        stop: StopRequest,
        plugins: Sequence[Path] = (),
        fault: str = "",
    ) -> TorchrunRanks:
        """Join the other ranks; returns in every rank, once all have joined."""
        timeout = datetime.timedelta(seconds=timeout_s)
        store, _, _ = next(dist.rendezvous("env://", seat.rank, seat.world_size, timeout=timeout))  # type: ignore[attr-defined]
        mine = under("parbench", store)
        full = Seat(
            rank=seat.rank,
            local_rank=seat.local_rank,
            world_size=seat.world_size,
            host=os.environ["MASTER_ADDR"],
            port=int(os.environ["MASTER_PORT"]),
            device=placement.device_of(seat.local_rank),
            backend=placement.backend,
            threads=threads,
            group_timeout_s=timeout_s,  # no launcher watches from outside: a group's own deadline is the only one
            log="",
            plugins=tuple(map(str, plugins)),
            fault=fault,
        )
        heartbeat = Heartbeat(seat.rank, None)
        rank = join(full, heartbeat, under("group", store))
        ranks = TorchrunRanks(seat, mine, rank, stop, timeout_s)
        mine.set(f"ready/{seat.rank}", encode(Ready(device_name=device_name(rank.device))).decode())
        # A client of its own: this thread's may be held for hours by a wait for the next command.
        own = under("parbench", store.clone())
        over = threading.Event()
        pulses = threading.Thread(target=_publish, args=(own, heartbeat, over), name="parbench-pulse", daemon=True)
        pulses.start()
        # A thread that is inside the store when the interpreter ends is torn down there, which aborts the process.
        atexit.register(_ended, pulses, over)
        if seat.rank == 0:
            replies = [decode_reply(mine.get(f"ready/{k}")) for k in range(seat.world_size)]
            ranks.device_names = tuple(r.device_name for r in replies if isinstance(r, Ready))
        return ranks

    def serve(self) -> int:
        """Carry out rank 0's commands until it says to leave; return the exit code."""
        number = 0
        while True:
            key = f"command/{number}"
            self._store.wait([key], _LONG)
            command = decode_command(self._store.get(key))
            try:
                reply = self._rank.execute(command)
            except Exception as error:  # noqa: BLE001 - whatever ends a rank must reach rank 0
                traceback.print_exc()
                sys.stderr.flush()
                self._reply(number, raised(error, self._rank.step))
                # torchrun ends everybody once one rank exits: let rank 0 store what it has first.
                _wait_quietly(self._store, _OVER, 4 * _FOLLOWERS_S)
                return 4
            self._reply(number, reply)
            if isinstance(command, Leave):
                return 0
            number += 1

    def call(self, command: Command) -> list[Reply]:
        if self._lost is not None:
            over = Failure(rank=None, step=None, kind="exit", message=f"was over before this case ({self._lost})")
            raise RankLost(over, self.world_size)
        if self._stop.asked and not isinstance(command, Leave | Clear):
            raise Stopped(self._stop.exit_code)
        number = self._calls
        self._calls += 1
        self._store.set(f"command/{number}", encode(command).decode())
        try:
            own = self._rank.execute(command)
        except Exception as error:
            traceback.print_exc()
            raise self._failed(number, error) from error
        return [own, *(self._reply_of(number, k) for k in range(1, self.world_size))]

    def leave(self) -> None:
        self.call(Clear())

    def end(self) -> None:
        """Let every rank end; the launch is over."""
        if self._lost is None:
            self.call(Leave())
        self._store.set(_OVER, "yes")

    def kill(self) -> None:
        # torchrun owns the processes; a launch in which one failed is over for all.
        if self._lost is None:
            failure = Failure(rank=None, step=None, kind="exit", message="was given up")
            self._lost = RankLost(failure, self.world_size)

    def logs(self) -> dict[str, str]:
        return {}

    def _reply(self, number: int, reply: Reply) -> None:
        self._store.set(f"reply/{number}/{self._seat.rank}", encode(reply).decode())

    def _reply_of(self, number: int, rank: int) -> Reply:
        key = f"reply/{number}/{rank}"
        deadline_s = time.monotonic() + self._timeout_s
        while not self._store.check([key]):
            if time.monotonic() > deadline_s:
                raise self._stuck()
            time.sleep(0.0005)
        reply = decode_reply(self._store.get(key))
        if isinstance(reply, Raised):
            raise self._failed(number, None)
        return reply

    def _failed(self, number: int, own: Exception | None) -> RankLost | RanksStuck:
        """Find the first failure among all ranks."""
        found: list[tuple[bool, float, int, Raised]] = []
        if own is not None:
            mine = raised(own, self._rank.step)
            found.append((follows_from_a_peer(mine.message), mine.at_s, 0, mine))
        deadline_s = time.monotonic() + _FOLLOWERS_S
        waiting = set(range(1, self.world_size))
        while waiting and time.monotonic() < deadline_s:
            for rank in sorted(waiting):
                if self._store.check([f"reply/{number}/{rank}"]):
                    waiting.discard(rank)
                    reply = decode_reply(self._store.get(f"reply/{number}/{rank}"))
                    if isinstance(reply, Raised):
                        found.append((follows_from_a_peer(reply.message), reply.at_s, rank, reply))
            time.sleep(0.05)
        found.sort(key=lambda f: f[:3])
        only_followed = all(f[0] for f in found)
        if only_followed and "timed out" in found[0][3].message.lower():
            return self._stuck()
        _, _, rank, root = found[0]
        if only_followed and waiting:  # a rank that says nothing while others lose it was killed
            rank, root = min(waiting), Raised(at_s=0.0, step=root.step, kind="exit", message="ended without a word")
        followed = tuple(f"rank {r} {reply.message}" for _, _, r, reply in found if r != rank)
        failure = Failure(rank=rank, step=root.step, kind=root.kind, message=root.message, followed=followed)
        self._lost = RankLost(failure, self.world_size)
        return self._lost

    def _stuck(self) -> RanksStuck:
        pulses = [decode_pulse(self._store.get(f"pulse/{k}")) for k in range(self.world_size)]
        behind = min(pulses, key=lambda p: (-1 if p.step is None else p.step, p.sequence))
        message = f"made no progress for {self._timeout_s:g} s: rank {behind.rank} is behind the others"
        standing = tuple(f"rank {p.rank}: in {p.phase} step {p.step}, collectives {p.sequence}" for p in pulses)
        failure = Failure(rank=behind.rank, step=behind.step, kind="hang", message=message, followed=standing)
        self._lost = RanksStuck(failure, self.world_size)
        return self._lost


def _ended(thread: threading.Thread, over: threading.Event) -> None:
    over.set()
    thread.join(_FOLLOWERS_S)


def _publish(store: Store, heartbeat: Heartbeat, over: threading.Event) -> None:
    while not over.is_set():
        try:
            pulse = heartbeat.pulse()
            store.set(f"pulse/{pulse.rank}", encode(pulse).decode())
        except Exception:  # noqa: BLE001 - the store is gone: so is the launch
            return
        over.wait(0.5)


def _wait_quietly(store: Store, key: str, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline_s and not store.check([key]):
            time.sleep(0.1)
    except Exception:  # noqa: BLE001 - the store is gone: nobody is left to wait for
        return
