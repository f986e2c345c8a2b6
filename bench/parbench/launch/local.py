"""Local ranks: fresh processes of this machine from a forkserver that has torch loaded, watched until they end.

launcher ──commands──> rank 0, rank 1, ...      JSON, one pipe each
         <──replies───
         <──pulses────                          phase, step, sequence numbers, every quarter second
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import final

from parbench.launch.failure import RankLost, RanksStuck, Stopped, follows_from_a_peer
from parbench.launch.forkserver import ensure_forkserver
from parbench.launch.messages import (
    Command,
    Leave,
    Raised,
    Ready,
    Reply,
    Seat,
    decode_pulse,
    decode_reply,
    encode,
)
from parbench.launch.pipe import Pipe
from parbench.launch.place import Placement
from parbench.launch.ranks import Ranks
from parbench.launch.seat import Seated, least_advanced
from parbench.launch.stopping import StopRequest
from parbench.network.seat import NetworkSeat
from parbench.record import Failure

_HOST = "127.0.0.1"
# The store is not what finds a hang: it must come up even where a user's deadline is shorter than that takes.
_STORE_TIMEOUT_S = 60.0
_TICK_S = 0.2
_FOLLOWERS_S = 1.0  # how long the other ranks get to say what happened to them
_STACKS_S = 0.7  # how long faulthandler gets to write
_LEAVE_S = 10.0
_JOIN_S = 5.0
_SHORTEST_TIMEOUT_S = 1.0  # ranks say four times a second how far they are


@final
class LocalRanks(Ranks):
    """Ranks on this machine; use `start` to make them."""

    kind = "local forkserver"

    def __init__(
        self,
        seated: Sequence[Seated],
        folder: Path,
        timeout_s: float,
        stop: StopRequest,
        store: object,
        *,
        owns_folder: bool,
    ) -> None:
        self.world_size = len(seated)
        self.device_names: tuple[str, ...] = ()
        self.ready_s: float | None = None
        self._seated = seated
        self._folder = folder
        self._owns_folder = owns_folder
        self._timeout_s = max(timeout_s, _SHORTEST_TIMEOUT_S)
        self._stop = stop
        self._store = store  # the ranks' rendezvous lives as long as they do
        # multiprocessing ends forgotten processes with SIGTERM and then waits for them, however long that takes.
        atexit.register(self.kill)

    @staticmethod
    def start(
        world_size: int,
        placement: Placement,
        *,
        threads: int,
        timeout_s: float,
        stop: StopRequest,
        plugins: Sequence[Path] = (),
        fault: str = "",
        log_folder: Path | None = None,
        network: Sequence[NetworkSeat] = (),
        weigh: bool = False,
        memory_bytes: int | None = None,
    ) -> LocalRanks:
        """Start fresh ranks and wait until all have joined.

        Args:
            world_size: how many.
            placement: device and backend.
            threads: compute threads of each.
            timeout_s: seconds without progress after which the launch is ended.
            stop: asked between commands and while waiting.
            plugins: files whose plug-ins the ranks load.
            fault: PARBENCH_FAULT, for tests.
            log_folder: where ranks write their logs; by default a temporary folder, removed unless a rank fails.
            network: where each rank's shaped link is, in rank order; nothing where links are as they are.
            weigh: whether they give freed memory back, so that what they hold can be weighed.
            memory_bytes: the most that each may take besides what it begins with.

        Raises:
            RankLost, RanksStuck, Stopped: as `Ranks.call`.
        """
        from parbench.launch.stores import opened  # torch: only where ranks are started
        from parbench.worker import main

        ensure_forkserver(stop)
        started_s = time.perf_counter()
        folder = log_folder or Path(tempfile.mkdtemp(prefix="parbench-"))
        seated: list[Seated] = []
        try:
            store, port = opened(_HOST, max(timeout_s, _STORE_TIMEOUT_S))
            seats = [
                Seat(
                    rank=rank,
                    local_rank=rank,
                    world_size=world_size,
                    host=_HOST,
                    port=port,
                    device=placement.device_of(rank),
                    backend=placement.backend,
                    threads=threads,
                    # Far beyond the launcher's deadline: the launcher finds the culprit, a group only its victim.
                    group_timeout_s=2 * timeout_s + 600,
                    log=str(folder / f"rank{rank}.log"),
                    plugins=tuple(map(str, plugins)),
                    fault=fault,
                    network=network[rank] if network else None,
                    weigh=weigh,
                    memory_bytes=memory_bytes,
                )
                for rank in range(world_size)
            ]
            for seat in seats:
                seated.append(Seated.start(main, seat))
        except BaseException as error:
            for started in seated:
                started.process.kill()
            if log_folder is None:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError | EOFError):  # too many processes or open files for this user
                message = f"could not be started: {type(error).__name__}: {error}; use fewer ranks, or raise the limit"
                failure = Failure(rank=len(seated), step=None, kind="exception", message=message)
                raise RankLost(failure, world_size) from error
            raise
        ranks = LocalRanks(seated, folder, timeout_s, stop, store, owns_folder=log_folder is None)
        try:
            replies = ranks._collect(ready=True)
        except BaseException:
            ranks.kill()
            raise
        ranks.device_names = tuple(r.device_name for r in replies if isinstance(r, Ready))
        ranks.ready_s = time.perf_counter() - started_s
        return ranks

    def call(self, command: Command) -> list[Reply]:
        if self._stop.asked:
            raise Stopped(self._stop.exit_code)
        self._send(command)
        return self._collect()

    def leave(self) -> None:
        self._send(Leave())
        self._collect()
        deadline_s = time.monotonic() + _LEAVE_S
        for seated in self._seated:
            seated.process.join(max(0.0, deadline_s - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        self._end()
        if self._owns_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def logs(self) -> dict[str, str]:
        return {f"log/rank{s.rank}.log": str(s.log) for s in self._seated if s.log.exists()}

    @property
    def pids(self) -> list[int]:
        """Process ids, in rank order."""
        return [s.process.pid or 0 for s in self._seated]

    @property
    def exit_codes(self) -> list[int | None]:
        """How each process ended (negative: by that signal), in rank order; None where it has not."""
        return [s.process.exitcode for s in self._seated]

    # ---- waiting

    def _send(self, command: Command) -> None:
        message = encode(command)
        now_s = time.monotonic()
        for seated in self._seated:
            seated.moved_s = now_s
            # A rank that has just died is found, with its exit code, by _collect.
            with contextlib.suppress(OSError):
                seated.commands.send_bytes(message)

    def _collect(self, *, ready: bool = False) -> list[Reply]:
        replies: dict[int, Reply] = {}
        while len(replies) < self.world_size:
            self._listen(replies)
            if self._dead(replies):
                self._listen(replies, 0.0)  # its last word may have come after the first look
            if self._dead(replies) or any(isinstance(r, Raised) for r in replies.values()):
                raise self._lost(replies)
            if self._stop.now or (ready and self._stop.asked):
                self.kill()
                raise Stopped(self._stop.exit_code)
            waiting = [s for s in self._seated if s.rank not in replies]
            if waiting and time.monotonic() - max(s.moved_s for s in self._seated) > self._timeout_s:
                raise self._stuck(replies)
        return [replies[rank] for rank in range(self.world_size)]

    def _listen(self, replies: dict[int, Reply], timeout_s: float = _TICK_S) -> None:
        """Take in whatever has arrived, waiting at most `timeout_s` for it."""
        pending = [s for s in self._seated if s.rank not in replies]
        pipes = {s.commands: s for s in pending} | {s.pulses: s for s in self._seated}
        # A pipe that has ended is always ready: waiting for it again would keep a core busy beside the ranks.
        pipes = {pipe: s for pipe, s in pipes.items() if pipe not in s.closed}
        sentinels = [s.process.sentinel for s in pending if s.died_s is None]
        for source in wait([*pipes, *sentinels], timeout_s):
            if isinstance(source, Connection) and (seated := pipes.get(source)) is not None:
                self._take(seated, source, replies)

    def _take(self, seated: Seated, pipe: Pipe, replies: dict[int, Reply]) -> None:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            seated.closed.add(pipe)
            return
        if pipe is seated.pulses:
            seated.hear(decode_pulse(message))
        else:
            replies[seated.rank] = decode_reply(message)

    def _dead(self, replies: dict[int, Reply]) -> list[Seated]:
        return [s for s in self._seated if s.rank not in replies and s.dead]

    # ---- endings

    def _end(self) -> None:
        for seated in self._seated:
            if seated.process.is_alive():
                seated.process.kill()
        for seated in self._seated:
            seated.process.join(_JOIN_S)
            seated.commands.close()
            seated.pulses.close()
        self._store = None
        atexit.unregister(self.kill)

    def _lost(self, replies: dict[int, Reply]) -> RankLost | Stopped:
        """Find the rank that failed first, end the others, and tell the story in order."""
        deadline_s = time.monotonic() + _FOLLOWERS_S
        while time.monotonic() < deadline_s and len(replies) + len(self._dead(replies)) < self.world_size:
            self._listen(replies, 0.05)
        failures = [f for f in (s.failure(replies.get(s.rank)) for s in self._seated) if f is not None]
        # A rank that lost its peer only followed.
        failures.sort(key=lambda f: (follows_from_a_peer(f[1].message), f[0]))
        root = failures[0][1]
        if self._stop.asked and root.kind in ("exit", "signal"):
            self.kill()  # a signal to the whole process group ends the ranks too: that is no failure of theirs
            return Stopped(self._stop.exit_code)
        self._end()
        followed = tuple(f"rank {f.rank} {f.message}" for _, f in failures[1:])
        error = RankLost(
            Failure(
                rank=root.rank,
                step=root.step,
                kind=root.kind,
                message=root.message,
                detail=f"log/rank{root.rank}.log",
                followed=followed,
            ),
            self.world_size,
            self.logs(),
        )
        self._keep_logs(error, root.rank)
        return error

    def _stuck(self, replies: dict[int, Reply]) -> RanksStuck:
        """Blame the rank that has come least far, get everybody's stacks, and end them."""
        for seated in self._seated:
            if seated.process.pid and seated.process.is_alive():
                os.kill(seated.process.pid, signal.SIGUSR1)
        time.sleep(_STACKS_S)
        waiting = [s for s in self._seated if s.rank not in replies]
        behind = least_advanced(waiting)
        self._end()
        names = ", ".join(str(s.rank) for s in behind)
        where = f"rank {names} is behind the others" if len(behind) == 1 else f"ranks {names} are behind the others"
        if len(behind) == len(waiting):
            where = f"all waiting ranks ({names}) stand at the same point"
        if len(waiting) == 1:
            where = f"only rank {names} has not answered"
        message = f"made no progress for {self._timeout_s:g} s: {where}"
        error = RanksStuck(
            Failure(
                rank=behind[0].rank,
                step=behind[0].step,
                kind="hang",
                message=message,
                detail=f"log/rank{behind[0].rank}.log",
                followed=tuple(s.standing for s in self._seated),
            ),
            self.world_size,
            self.logs(),
        )
        self._keep_logs(error, behind[0].rank)
        return error

    def _keep_logs(self, error: Exception, rank: int | None) -> None:
        if self._owns_folder:  # nobody else keeps them, and they hold the traceback
            self._owns_folder = False
            error.add_note(f"the log of rank {rank}: {self._folder / f'rank{rank}.log'}")
