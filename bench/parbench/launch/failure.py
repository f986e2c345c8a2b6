"""How a launch ends early: the failure that caused it, with every rank's part in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from parbench.errors import RankFailed, Stuck
from parbench.record import Failure

# What a rank says when its peer is gone: it followed from another rank's end.
_PEER_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "connection was closed",
    "timed out waiting",
    "application timeout caused pair closure",
    "remote process exited",
    "store is closed",
    "socket closed",
    "gave up this step",
    "connection was likely closed",
    "ncclremoteerror",
    "communicator was aborted",
)


# What is said when memory is refused, by torch and by the C++ below it.
_NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")


class RankLost(RankFailed):
    """A rank raised, exited or was killed; `failure` says which and how, `logs` are as `Ranks.logs` gives them."""

    def __init__(self, failure: Failure, world_size: int, logs: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence(failure, world_size))
        self.failure = failure
        self.logs = dict(logs or {})


class RanksStuck(Stuck):
    """No rank made progress until the deadline; `failure` names who is to blame, `logs` hold everybody's stacks."""

    def __init__(self, failure: Failure, world_size: int, logs: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence(failure, world_size))
        self.failure = failure
        self.logs = dict(logs or {})


class Stopped(Exception):
    """The user asked to stop (Ctrl-C or SIGTERM); `exit_code` is 130 or 143."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"stopped by {'Ctrl-C' if exit_code == 130 else 'SIGTERM'}")
        self.exit_code = exit_code


def sentence(failure: Failure, world_size: int) -> str:
    """Return the one line a user reads: rank, step and cause."""
    who = f"rank {failure.rank}/{world_size}" if failure.rank is not None else f"the launch of {world_size} ranks"
    where = f" step {failure.step}" if failure.step is not None else ""
    return f"{who}{where} {failure.message}"


def follows_from_a_peer(message: str) -> bool:
    """Return whether `message` is what a rank says when another rank is gone."""
    lowered = message.lower()
    return any(phrase in lowered for phrase in _PEER_LOST)


def describe_exit(exit_code: int, peak_rss_bytes: int | None) -> tuple[str, str]:
    """Return the kind and the sentence of a process that ended without a word.

    Args:
        exit_code: as multiprocessing reports it: negative for a signal.
        peak_rss_bytes: the rank's last known peak of resident memory.
    """
    if exit_code >= 0:
        return "exit", f"ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = "unknown"
    text = f"was ended by signal {-exit_code} ({name})"
    if -exit_code == signal.SIGKILL:
        peak = f"{peak_rss_bytes / 2**20:.0f} MiB" if peak_rss_bytes else "not known"
        text += f" – often the kernel's out-of-memory killer; peak RSS of this rank was {peak}"
    return "signal", text


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` says that memory ran out, on the host or the device."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(phrase in text for phrase in (*_NO_MEMORY, os.strerror(12).lower()))
    )
