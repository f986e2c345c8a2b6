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
from parbench.launch.pipe import Pipe

_PERIOD_S = 0.25


@final
class Heartbeat:
    """Tells the launcher phase, step and the sequence number of each group, a few times a second.

    Attributes:
        phase: what the rank is doing, in a word or two; set by whoever does it.
        step: the training step being taken; None outside steps.
    """

    def __init__(self, rank: int, pulses: Pipe) -> None:
        self.phase = "starting"
        self.step: int | None = None
        self._rank = rank
        self._pulses = pulses
        self._groups: list[dist.ProcessGroup] = []
        self._thread = threading.Thread(target=self._beat, name="parbench-heartbeat", daemon=True)

    def start(self) -> None:
        """Start beating."""
        self._thread.start()

    def watch(self, groups: list[dist.ProcessGroup]) -> None:
        """Report the sequence numbers of these groups from now on."""
        self._groups = groups

    def pulse(self) -> Pulse:
        """Return where the rank is now."""
        # The one public sign of how far a group has come is on its backend's side; torch's stubs leave it out.
        sequence = tuple(int(group._get_sequence_number_for_group()) for group in self._groups)  # type: ignore[attr-defined]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Pulse(rank=self._rank, phase=self.phase, step=self.step, sequence=sequence, peak_rss_bytes=peak)

    def _beat(self) -> None:
        parent = mp.parent_process()
        sentinels = [parent.sentinel] if parent is not None else []
        while True:
            # PR_SET_PDEATHSIG is no help: a rank's parent is the forkserver, which may outlive the launcher.
            if wait(sentinels, timeout=_PERIOD_S):
                os._exit(1)
            try:
                self._pulses.send_bytes(encode(self.pulse()))
            except OSError:
                os._exit(1)
