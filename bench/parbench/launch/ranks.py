"""Ranks: the processes of one launch, told what to do all at once, wherever they run."""

from __future__ import annotations

import abc
from typing import ClassVar

from parbench.launch.messages import Command, Reply


class Ranks(abc.ABC):
    """The live ranks of one launch.

    Attributes:
        kind: where they run, for the record.
        world_size: how many there are.
        device_names: the accelerator of each rank, in rank order.
        ready_s: seconds from asking for the ranks until all had joined; None where another program started them.
    """

    kind: ClassVar[str]
    world_size: int
    device_names: tuple[str, ...]
    ready_s: float | None

    @property
    def pids(self) -> list[int]:
        """Process ids, in rank order; none where another program started them."""
        return []

    @abc.abstractmethod
    def call(self, command: Command) -> list[Reply]:
        """Let every rank carry out `command` and return their replies in rank order.

        Raises:
            RankLost: a rank raised, exited or was killed; no rank is left.
            RanksStuck: nothing moved until the deadline; no rank is left.
            Stopped: the user asked to stop; the ranks may still be alive.
        """

    @abc.abstractmethod
    def leave(self) -> None:
        """Let every rank release everything and end by itself; raises as `call` does."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End every rank that is still there, at once."""

    @abc.abstractmethod
    def logs(self) -> dict[str, str]:
        """Return file name in a record's folder -> path of each rank's log."""
