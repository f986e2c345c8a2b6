"""Local ranks: fresh processes of this machine from a forkserver that has torch loaded, watched until they end.

launcher ──commands──> rank 0, rank 1, ...      JSON, one pipe each
         <──replies───
         <──pulses────                          phase, step, sequence numbers, every quarter second
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import final

from parbench.errors import MissingError
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
from parbench.launch.place import Placement
from parbench.launch.ranks import Ranks
from parbench.launch.seat import Seated, least_advanced
from parbench.launch.stopping import StopRequest
from parbench.record import Failure

_HOST = "127.0.0.1"
_TICK_S = 0.2
_FOLLOWERS_S = 1.0  # how long the other ranks get to say what happened to them
_STACKS_S = 0.7  # how long faulthandler gets to write
_LEAVE_S = 10.0


@final
class LocalRanks(Ranks):
    """Ranks on this machine; use `start` to make them."""

    kind = "local forkserver"

    def __init__(
        self, seated: Sequence[Seated], folder: Path, timeout_s: float, stop: StopRequest, store: object
    ) -> None:
        self.world_size = len(seated)
        self.device_names: tuple[str, ...] = ()
        self.ready_s: float | None = None
        self._seated = seated
        self._folder = folder
        self._timeout_s = timeout_s
        self._stop = stop
        self._store = store  # the ranks' rendezvous lives as long as they do

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

        Raises:
            RankLost, RanksStuck, Stopped: as `Ranks.call`.
        """
        from parbench.worker import main  # torch: only where ranks are started

        ensure_forkserver()
        started_s = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix="parbench-"))
        try:
            store, port = _rendezvous(timeout_s)
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
                    plugins=tuple(str(p.resolve()) for p in plugins),
                    fault=fault,
                )
                for rank in range(world_size)
            ]
            ranks = LocalRanks([Seated.start(main, seat) for seat in seats], folder, timeout_s, stop, store)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
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
        for seated in self._seated:
            if seated.process.is_alive():
                seated.process.kill()
        for seated in self._seated:
            seated.process.join(5.0)
            seated.commands.close()
            seated.pulses.close()
        self._store = None

    def logs(self) -> dict[str, str]:
        return {f"log/rank{s.rank}.log": str(s.log) for s in self._seated if s.log.exists()}

    def forget_logs(self) -> None:
        """Remove the launch's temporary folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Process ids, in rank order."""
        return [s.process.pid or 0 for s in self._seated]

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
            lost = [r for r in replies.values() if isinstance(r, Raised)]
            if lost or self._dead(replies):
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
        waiting: dict[object, Seated] = {s.commands: s for s in self._seated if s.rank not in replies}
        beating: dict[object, Seated] = {s.pulses: s for s in self._seated}
        sentinels = [s.process.sentinel for s in self._seated if s.rank not in replies]
        pipes = [*(s.commands for s in self._seated if s.rank not in replies), *(s.pulses for s in self._seated)]
        for source in wait([*pipes, *sentinels], timeout_s):
            with contextlib.suppress(EOFError, OSError):
                if source in waiting:
                    seated = waiting[source]
                    replies[seated.rank] = decode_reply(seated.commands.recv_bytes())
                elif source in beating:
                    seated = beating[source]
                    seated.hear(decode_pulse(seated.pulses.recv_bytes()))

    def _dead(self, replies: dict[int, Reply]) -> list[Seated]:
        return [s for s in self._seated if s.rank not in replies and s.process.exitcode is not None]

    # ---- endings

    def _lost(self, replies: dict[int, Reply]) -> RankLost:
        """Find the rank that failed first, end the others, and tell the story in order."""
        deadline_s = time.monotonic() + _FOLLOWERS_S
        while time.monotonic() < deadline_s and len(replies) + len(self._dead(replies)) < self.world_size:
            self._listen(replies, 0.05)
        failures = [f for f in (s.failure(replies.get(s.rank)) for s in self._seated) if f is not None]
        # A rank that lost its peer only followed; among the rest a silent death precedes what others say of it.
        failures.sort(key=lambda f: (follows_from_a_peer(f[1].message), f[0]))
        self.kill()
        root = failures[0][1]
        followed = tuple(f"rank {f.rank} {f.message}" for _, f in failures[1:])
        return RankLost(
            Failure(
                rank=root.rank,
                step=root.step,
                kind=root.kind,
                message=root.message,
                detail=f"log/rank{root.rank}.log",
                followed=followed,
            ),
            self.world_size,
        )

    def _stuck(self, replies: dict[int, Reply]) -> RanksStuck:
        """Blame the rank that has come least far, get everybody's stacks, and end them."""
        for seated in self._seated:
            if seated.process.pid and seated.process.is_alive():
                os.kill(seated.process.pid, signal.SIGUSR1)
        time.sleep(_STACKS_S)
        waiting = [s for s in self._seated if s.rank not in replies]
        behind = least_advanced(waiting)
        self.kill()
        names = ", ".join(str(s.rank) for s in behind)
        who = f"rank {names} is" if len(behind) == 1 else f"ranks {names} are"
        message = f"made no progress for {self._timeout_s:g} s: {who} behind the others"
        if len(behind) == len(waiting):
            message = f"made no progress for {self._timeout_s:g} s: all waiting ranks ({names}) stand at the same point"
        return RanksStuck(
            Failure(
                rank=behind[0].rank,
                step=behind[0].pulse.step if behind[0].pulse else None,
                kind="hang",
                message=message,
                detail=f"log/rank{behind[0].rank}.log",
                followed=tuple(s.standing for s in self._seated),
            ),
            self.world_size,
        )


def _rendezvous(timeout_s: float) -> tuple[object, int]:
    """Open the store where ranks meet, on loopback only, on a port of the system's choice."""
    try:
        import torch.distributed as dist
    except ImportError:
        raise MissingError("ranks need torch: pip install 'parbench[run]'") from None
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((_HOST, 0))
    listener.listen(1024)
    port = listener.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]
        _HOST,
        port,
        None,
        is_master=True,
        timeout=datetime.timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port
