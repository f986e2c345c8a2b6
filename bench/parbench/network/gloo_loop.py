"""gloo's loop thread spins while a pair is busy; where compute is paced it gets the lowest class of the scheduler.

With more runnable threads than cores, each collision of the spinning thread with one that was preempted costs a slice
of milliseconds: an all-reduce of 16 elements at 4 ranks on 2 cores took 7 ms, 1.5 ms with the loop thread idle-class.
Only where ranks sleep instead of computing: an idle-class thread starves under real compute, and its rank with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_NAME = "gloo_tcp_loop"[:15]  # what the kernel keeps of a thread's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Tamed:
    """What was done to gloo's loop threads.

    Attributes:
        threads: ids of those that are idle-class now.
        reason: why there are none, "" if there are.
    """

    threads: tuple[int, ...] = ()
    reason: str = ""


def tame_gloo_loop() -> Tamed:
    """Put the loop threads of this process into SCHED_IDLE; call it after each new group, in every rank, while paced.

    Nothing else changes, and no right is needed: every process may lower its own threads. It is not undone: the class
    of a thread ends with it.
    """
    if not hasattr(os, "SCHED_IDLE"):
        return Tamed(reason="this system has no idle class of threads (SCHED_IDLE)")
    found = [int(task.name) for task in Path("/proc/self/task").glob("*") if _name(task) == _NAME]
    if not found:
        return Tamed(reason="this process has no thread of gloo's loop; make a gloo group first")
    tamed: list[int] = []
    for thread in found:
        try:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        except ProcessLookupError:
            continue  # it ended meanwhile
        except OSError as error:
            return Tamed(threads=tuple(tamed), reason=f"the system does not allow it: {error.strerror}")
        tamed.append(thread)
    return Tamed(threads=tuple(tamed))


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""  # it ended meanwhile
