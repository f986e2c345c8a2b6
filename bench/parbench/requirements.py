"""Requirements are what a user wants to be there before anything starts: meters of power, boards without neighbours."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from parbench import rapl
from parbench.boardmeter import BoardMeter
from parbench.errors import MissingError, unknown_name
from parbench.nvml import Nvml
from parbench.visible import seen

# Where the kernel's power caps are, if not in their usual place.
POWERCAP = "PARBENCH_POWERCAP"


class Demands(NamedTuple):
    """What must be there, and be found, before anything is measured.

    Attributes:
        require: what must be measurable, or nothing is started: "power".
        exclusive: start nothing where other processes compute on the GPUs.
        find_max_batch: measure every cell with the largest batch that fits into memory.
        memory_snapshot: keep the history of CUDA's allocator.
    """

    require: tuple[str, ...] = ()
    exclusive: bool = False
    find_max_batch: bool = False
    memory_snapshot: bool = False


NO_DEMANDS = Demands()


def powercap() -> Path:
    """Return the folder of the kernel's power caps."""
    return Path(os.environ.get(POWERCAP, rapl.POWERCAP))


def check(demands: Demands, devices: Iterable[str]) -> None:
    """Refuse where something that is asked for is not there.

    Args:
        demands: what is asked for.
        devices: where the cases compute: "cpu", "cuda".

    Raises:
        UsageError: nobody knows such a requirement.
        MissingError: it is not there.
    """
    for name in demands.require:
        if name != "power":
            raise unknown_name("requirement", name, ["power"], "--require power")
    for device in dict.fromkeys(devices):
        if demands.require and (why := _no_power(device)) is not None:
            raise MissingError(f"--require power: {why}")
        if demands.memory_snapshot and device != "cuda":
            raise MissingError(
                f"--memory-snapshot keeps the history of CUDA's allocator, and cases compute on {device}; "
                "leave it out, or use a GPU (--device cuda)"
            )
        if demands.exclusive and device == "cuda" and (who := _neighbours()) is not None:
            raise MissingError(f"--exclusive: {who}; end them, or choose other boards (CUDA_VISIBLE_DEVICES)")


def _no_power(device: str) -> str | None:
    if device == "cpu":
        found = rapl.packages(powercap())
        return found if isinstance(found, str) else None
    boards = _boards()
    if isinstance(boards, str):
        return boards
    silent = [one for one in boards if one.read() == (None, None)]
    if not silent:
        return None
    return f"{silent[0].board.name} {silent[0].board.index} gives neither power nor energy" + "".join(
        f"; {what}: {why}" for what, why in silent[0].why.items() if what in ("power", "energy counter")
    )


def _neighbours() -> str | None:
    boards = _boards()
    if isinstance(boards, str):
        return f"whether others compute on the boards is not known: {boards}"
    busy = [(one.board, found) for one in boards if (found := one.processes())]
    if not busy:
        return None
    board, found = busy[0]
    return f"{len(found)} other processes compute on {board.name} {board.index}"


def _boards() -> list[BoardMeter] | str:
    """Return the meters of the boards that this process may use, or why there are none."""
    nvml = Nvml.open()
    if isinstance(nvml, str):
        return nvml
    mine = seen(nvml.boards, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
    if isinstance(mine, str):
        return mine
    return [BoardMeter(one.board) for one in mine] or "CUDA_VISIBLE_DEVICES shows no board"
