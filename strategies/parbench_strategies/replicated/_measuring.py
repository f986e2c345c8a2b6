"""The link is measured by adding up messages of growing size with the very collective that gradients will take."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

import torch

from parbench.api import Collective, Comm

_SIZES: Final = tuple(4**k * 1024 for k in range(10))  # 1 KiB to 256 MiB
_FEWEST_SIZES: Final = 3
_REPEATS: Final = 5
# No larger message is tried once all so far took as long: a rule goes on with the straight line through the last two.
_ENOUGH_S: Final = 0.5


def measured_points(
    collective: Collective, comm: Comm, device: torch.device, largest_bytes: int
) -> list[tuple[float, float]]:
    """Return (bytes, seconds) of messages, medians on this rank; all ranks call it together.

    Args:
        collective: what carries them.
        comm: between which ranks.
        device: where tensors are.
        largest_bytes: of all gradients together; the first size beyond is the last one tried.
    """
    points: list[tuple[float, float]] = []
    began_s = time.perf_counter()
    for size in _SIZES:
        points.append((float(size), _seconds(collective, comm, torch.zeros(size // 4, device=device))))
        if len(points) >= _FEWEST_SIZES and (
            size >= largest_bytes or _led(comm, device, time.perf_counter() - began_s > _ENOUGH_S)
        ):
            break
    return points


def _seconds(collective: Collective, comm: Comm, flat_N: torch.Tensor) -> float:
    seconds = []
    for _ in range(1 + _REPEATS):
        comm.barrier()
        started_s = time.perf_counter()
        collective.start(flat_N, comm).wait()
        if flat_N.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started_s)
    return median(seconds[1:])


def _led(comm: Comm, device: torch.device, answer: bool) -> bool:
    """Return rank 0's answer on every rank: their clocks differ, and all must stop together."""
    return bool(comm.broadcast(torch.tensor(int(answer), device=device)))
