"""The launcher's view of one rank: its process, its pipes, where it was last heard of, and how it failed."""

from __future__ import annotations

import multiprocessing as mp
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from parbench.launch.failure import describe_exit
from parbench.launch.forkserver import Main, fork
from parbench.launch.messages import Pulse, Raised, Reply, Seat, encode
from parbench.launch.note import note_beside, noted_step
from parbench.launch.pipe import Pipe
from parbench.record import Failure


@dataclass(slots=True, kw_only=True)
class Seated:
    """One rank as its launcher sees it.

    Attributes:
        rank: which one.
        process: its process.
        commands: commands out, replies in.
        pulses: its heartbeat, in.
        log: what it printed, tracebacks and stacks included.
        pulse: the last sign of life.
        moved_s: when it last made progress, on the monotonic clock.
        closed: its pipes that have ended; nothing comes from them any more.
        died_s: when its end was noticed, on the clock that ranks stamp failures with.
    """

    rank: int
    process: ForkServerProcess
    commands: Pipe
    pulses: Pipe
    log: Path
    pulse: Pulse | None = None
    moved_s: float = field(default_factory=time.monotonic)
    closed: set[Pipe] = field(default_factory=set)
    died_s: float | None = None

    @staticmethod
    def start(main: Main, seat: Seat) -> Seated:
        """Start the process of one rank."""
        here, there = mp.Pipe()
        pulses_in, pulses_out = mp.Pipe(duplex=False)
        process = fork(main, encode(seat), there, pulses_out, f"parbench-rank{seat.rank}")
        there.close()
        pulses_out.close()
        return Seated(rank=seat.rank, process=process, commands=here, pulses=pulses_in, log=Path(seat.log))

    def hear(self, pulse: Pulse) -> None:
        """Take in a sign of life; only a change counts as progress."""
        last = self.pulse
        if last is None or (pulse.phase, pulse.step, pulse.sequence) != (last.phase, last.step, last.sequence):
            self.moved_s = time.monotonic()
        self.pulse = pulse

    def failure(self, reply: Reply | None) -> tuple[float, Failure] | None:
        """Return when and how the rank failed, or None if it has not.

        Args:
            reply: its last word, if it had one.
        """
        if isinstance(reply, Raised):
            return reply.at_s, Failure(rank=self.rank, step=reply.step, kind=reply.kind, message=reply.message)
        if reply is not None or not self.dead or self.process.exitcode is None:
            return None
        step = self.step
        kind, message = describe_exit(self.process.exitcode, self.pulse.peak_rss_bytes if self.pulse else None)
        # A silent end precedes what others say of it, though it is noticed later. Only an abort may follow: runtimes
        # end themselves that way when something else has gone wrong.
        at_s = self.died_s if self.died_s is not None and self.process.exitcode == -signal.SIGABRT else 0.0
        return at_s, Failure(rank=self.rank, step=step, kind=kind, message=message)

    @property
    def dead(self) -> bool:
        """Whether its process has ended."""
        if self.process.exitcode is None:
            return False
        if self.died_s is None:
            self.died_s = time.perf_counter()
        return True

    @property
    def step(self) -> int | None:
        """The training step it is, or was, in; None outside steps."""
        return noted_step(note_beside(self.log))

    @property
    def position(self) -> tuple[int, tuple[int, ...]]:
        """How far it has come: step, then collectives issued per group."""
        return (-1 if self.step is None else self.step, self.pulse.sequence if self.pulse else ())

    @property
    def standing(self) -> str:
        """Where it is, in words."""
        if self.pulse is None:
            return f"rank {self.rank}: never heard of"
        step = f" step {self.step}" if self.step is not None else ""
        counts = ", ".join(map(str, self.pulse.sequence)) or "none"
        return f"rank {self.rank}: in {self.pulse.phase}{step}; collectives issued per group: {counts}"


def least_advanced(waiting: Sequence[Seated]) -> list[Seated]:
    """Return those that have come least far: in a hang they are to blame, the others only wait for them."""
    lowest = min(s.position for s in waiting)
    return [s for s in waiting if s.position == lowest]
