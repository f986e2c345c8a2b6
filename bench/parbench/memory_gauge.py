"""A gauge of memory tells the most that one rank has held since it was last reset, on its device.

CPU: resident high-water of the process (VmHWM, which writing 5 to clear_refs resets), pages of files left out: which
parts of libraries have been touched is no matter of the model. Honest only where freed blocks go back to the kernel.
GPU: torch's allocator counts, to the byte.
"""

from __future__ import annotations

import abc
import ctypes
import gc
import resource
from pathlib import Path
from typing import final

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


class Gauge(abc.ABC):
    """Tells how much memory a rank holds, and the most it has held."""

    #: How the numbers are obtained, in a few words.
    source: str

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget the most that was held: from now on it is what is held now."""

    @abc.abstractmethod
    def held_bytes(self) -> int:
        """Return what is held now."""

    @abc.abstractmethod
    def peak_bytes(self) -> int:
        """Return the most that was held since the last reset."""

    def settle(self) -> None:
        """Give back what is not needed."""
        gc.collect()

    def facts(self) -> dict[str, int]:
        """Return what else the device's allocator tells, in bytes and counts."""
        return {}


@final
class ProcessGauge(Gauge):
    """Resident memory of this process, as Linux counts it."""

    source = "resident high-water of the process, pages of files left out"

    def reset(self) -> None:
        _RESET.write_text("5")

    def held_bytes(self) -> int:
        return _status()["RssAnon"]

    def peak_bytes(self) -> int:
        found = _status()
        # Pages of files only grow in number: at the high-water there were no more of them than now.
        return max(found["RssAnon"], found["VmHWM"] - found["RssFile"] - found["RssShmem"])

    def settle(self) -> None:
        gc.collect()
        _libc().malloc_trim(0)


@final
class AllocatorGauge(Gauge):
    """What torch's allocator has given out on a GPU."""

    source = "torch's allocator: bytes given out to tensors"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def reset(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def held_bytes(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def peak_bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device)

    def settle(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def facts(self) -> dict[str, int]:
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        return {
            "reserved_bytes": torch.cuda.max_memory_reserved(self._device),
            "active_bytes": int(stats.get("active_bytes.all.peak", 0)),
            "allocator_retries": int(stats.get("num_alloc_retries", 0)),
            "device_used_bytes": total - free,
        }


def gauge_of(device: torch.device) -> Gauge | str:
    """Return the gauge of a device, or a sentence saying why there is none."""
    if device.type == "cuda":
        return AllocatorGauge(device)
    try:
        gauge = ProcessGauge()
        gauge.reset()
        gauge.held_bytes()
        _libc()
    except (OSError, KeyError, AttributeError):
        return "this system does not tell the most memory that a process has held (Linux does, in /proc/self)"
    return gauge


def limit_memory(device: torch.device, most_bytes: int) -> None:
    """Let this process take so much more memory than it has, and no more: what goes beyond is refused, not killed."""
    if device.type == "cuda":
        total = torch.cuda.mem_get_info(device)[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, most_bytes / total), device)
        return
    limit = _status()["VmData"] + most_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def give_back_freed_memory() -> None:
    """Let glibc return blocks to the kernel when they are freed, so that resident memory is what is held."""
    _malloc(1 << 16)


def keep_freed_memory() -> None:
    """Let glibc keep freed blocks: a timed step would pay for page faults, not for arithmetic."""
    _malloc(1 << 30)


def _malloc(threshold: int) -> None:
    try:
        mallopt = _libc().mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, threshold)
    mallopt(_TRIM_THRESHOLD, threshold)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        raise AttributeError("this C library does not give memory back when asked")
    return libc


def _status() -> dict[str, int]:
    """Return the sizes in /proc/self/status, in bytes."""
    found = {}
    for line in _STATUS.read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            found[name] = int(rest.split()[0]) * 1024
    return found
