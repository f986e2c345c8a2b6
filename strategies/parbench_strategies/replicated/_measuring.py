"""The link is measured by adding up messages of growing size with the very collective that gradients will take."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

import torch

from parbench.api import Collective, Comm

_SIZES: Final = tuple(4**k * 1024 for k in range(7))  # 1 KiB to 4 MiB
_REPEATS: Final = 5


def measured_points(collective: Collective, comm: Comm, device: torch.device) -> list[tuple[float, float]]:
    """Return (bytes, seconds) of messages, medians on this rank; all ranks call it together."""
    points = []
    for size in _SIZES:
        flat_N = torch.zeros(size // 4, device=device)
        seconds = []
        for _ in range(1 + _REPEATS):
            comm.barrier()
            started_s = time.perf_counter()
            collective.start(flat_N, comm).wait()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started_s)
        points.append((float(size), median(seconds[1:])))
    return points
