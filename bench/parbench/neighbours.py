"""Neighbours are other processes on the cores of the ranks: what keeps cores busy and is none of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import final

import psutil

from parbench.record import Warned

# Time of cores is counted in hundredths of a second: shorter stretches say nothing.
_SHORTEST_S = 0.3
# They matter from here: so many cores, and so much of all cores.
_CORES, _SHARE = 0.2, 0.1


@final
class Neighbours:
    """Watches the cores of this process over a stretch of time.

    Args:
        pids: processes that are ours besides this one; none, where they are not known.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = [*pids, os.getpid()] if pids else []
        self._busy_s, self._ours_s, self._wall_s = _busy_s(), self._own_s(), time.perf_counter()

    def cores(self) -> float | None:
        """Return how many cores others kept busy since this was made; None where that cannot be told."""
        wall_s = time.perf_counter() - self._wall_s
        own_s = self._own_s()
        if own_s is None or self._ours_s is None or wall_s < _SHORTEST_S:
            return None
        return max(0.0, (_busy_s() - self._busy_s - (own_s - self._ours_s)) / wall_s)

    def _own_s(self) -> float | None:
        if not self._pids:
            return None
        try:
            times = [psutil.Process(pid).cpu_times() for pid in self._pids]
        except psutil.Error:
            return None
        return sum(one.user + one.system for one in times)


def neighbour_caution(cores: float | None, of: int) -> Warned | None:
    """Return what to say of neighbours that keep `cores` of `of` cores busy."""
    if cores is None or cores < _CORES or cores < _SHARE * of:
        return None
    return Warned(
        code="busy_neighbour",
        message=f"other processes kept {cores:.1f} of {of} cores busy during the timed rounds",
        advice="end them, or measure again when the machine is quiet: they slow some strategies more than others",
    )


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(_mine())


def _mine() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _busy_s() -> float:
    """Return the seconds for which the cores of this process were busy, with whatever, stolen time included."""
    every = psutil.cpu_times(percpu=True)
    mine = [every[k] for k in _mine() if k < len(every)]
    return float(sum(sum(one) - one.idle - getattr(one, "iowait", 0.0) - _guests(one) for one in mine))


def _guests(one: object) -> float:
    # Linux counts guests in user time too.
    return float(getattr(one, "guest", 0.0)) + float(getattr(one, "guest_nice", 0.0))
