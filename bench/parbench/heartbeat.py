"""A rank's heartbeat: a thread that says where the rank is, and ends the process when its launcher is gone."""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
import threading
from multiprocessing.connection import wait
from typing import final

import torch.distributed as dist

from parbench.launch.messages import Pulse, encode
from parbench.launch.note import StepNote
from parbench.launch.pipe import Pipe

_PERIOD_S = 0.25


@final
class Heartbeat:
    """Tells the launcher phase, step and the sequence number of each group, a few times a second.

    Attributes:
        phase: what the rank is doing, in a word or two; set by whoever does it.
    """

    def __init__(self, rank: int, pulses: Pipe | None, note: StepNote | None = None) -> None:
        self.phase = "starting"
        self._step: int | None = None
        self._note = note
        self._rank = rank
        self._pulses = pulses
        self._groups: list[dist.ProcessGroup] = []
        self._watched = threading.Lock()

    def start(self) -> None:
        """Start beating, where there is somebody to tell."""
        if self._pulses is not None:
            beat = threading.Thread(target=self._beat, args=(self._pulses,), name="parbench-heartbeat", daemon=True)
            beat.start()

    @property
    def step(self) -> int | None:
        """The training step being taken; None outside steps."""
        return self._step

    @step.setter
    def step(self, step: int | None) -> None:
        self._step = step
        if self._note is not None:
            self._note.write(step)

    def watch(self, groups: list[dist.ProcessGroup]) -> None:
        """Report the sequence numbers of these groups from now on.

        When it returns nobody looks at other groups any more: they may be destroyed.
        """
        with self._watched:
            self._groups = groups

    def pulse(self) -> Pulse:
        """Return where the rank is now."""
        with self._watched:
            sequence = _sequence(self._groups)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Pulse(rank=self._rank, phase=self.phase, step=self.step, sequence=sequence, peak_rss_bytes=peak)

    def _beat(self, pulses: Pipe) -> None:
        parent = mp.parent_process()
        sentinels = [parent.sentinel] if parent is not None else []
        while True:
            try:
                pulses.send_bytes(encode(self.pulse()))
            except OSError:
                os._exit(1)
            # PR_SET_PDEATHSIG is no help: a rank's parent is the forkserver, which lives as long as its ranks do.
            if wait(sentinels, timeout=_PERIOD_S):
                os._exit(1)


def _sequence(groups: list[dist.ProcessGroup]) -> tuple[int, ...]:
    try:
        # The one public sign of how far a group has come is on its backend's side; torch's stubs leave it out.
        return tuple(int(group._get_sequence_number_for_group()) for group in groups)  # type: ignore[attr-defined]
    except RuntimeError:
        # A strategy destroyed or aborted it. The thread must live on: it is what ends this process with its launcher.
        return ()
