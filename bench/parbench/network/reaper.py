"""The reaper ends keepers whose launcher is gone, and nothing else; their networks go with them.

A keeper ends with its launcher by itself, because their pipe ends. One that was stopped, or whose pipe somebody else
inherited, does not.
"""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from parbench.network.keeper import OWNER_VARIABLE, PROGRAM

_OWNER = re.compile(r"pb-[0-9a-z]+-([0-9]+) ([0-9]+\.[0-9]+)")
_SAME_S = 1.0  # process start times are kept in ticks, and move a little with the clock


def reap() -> list[int]:
    """End what dead launchers left and return the process ids of the keepers that were ended."""
    ended = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] not in (PROGRAM, "unshare"):
            continue
        try:
            owner = process.environ().get(OWNER_VARIABLE, "")
            if _numbered_as_here(process.pid) and is_orphan(owner):
                process.kill()  # psutil makes sure that the number still means the same process
                ended.append(process.pid)
        except psutil.Error:  # it ended meanwhile, or is another user's
            continue
    return ended


def is_orphan(owner: str) -> bool:
    """Whether `owner`, as a keeper's environment has it, names a launcher that is gone."""
    match = _OWNER.fullmatch(owner)
    if match is None:
        return False
    pid, began_s = int(match.group(1)), float(match.group(2))
    try:
        return abs(psutil.Process(pid).create_time() - began_s) > _SAME_S
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _numbered_as_here(pid: int) -> bool:
    """Whether numbers of processes mean the same to a process as here; in a container of its own they do not."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
