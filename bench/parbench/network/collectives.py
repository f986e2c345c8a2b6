"""Collectives and what is known of them without running any: their buffers, ideal bytes and bandwidth factors."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from parbench.errors import UsageError

OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv")

# How they reduce or spread: those whose buffer has one part per rank need a multiple of the ranks.
_IN_PARTS = frozenset({"reduce_scatter", "all_gather", "all_to_all"})

# Bytes of an element. All of them hold the sums of the check exactly.
DTYPES: Mapping[str, int] = MappingProxyType(
    {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
)

_UNITS: Mapping[str, int] = MappingProxyType(
    {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
)


def bus_factor(op: str, ranks: int) -> Fraction:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests define it; `ranks` are in the group.

    It makes the bandwidth of every collective comparable with that of one link, whatever the number of ranks.
    """
    if op == "all_reduce":
        return Fraction(2 * (ranks - 1), ranks)
    if op in _IN_PARTS:
        return Fraction(ranks - 1, ranks)
    return Fraction(1)


def numel_of(op: str, nbytes: int, dtype: str, ranks: int) -> int:
    """Return the elements of the whole buffer: those of `nbytes`, or up to a multiple of the ranks.

    The buffer is the whole one, n parts for the collectives with parts, as in nccl-tests.
    """
    numel = -(-nbytes // DTYPES[dtype])
    return -(-numel // ranks) * ranks if op in _IN_PARTS else numel


def size_of(text: str, label: str) -> int:
    """Return bytes of a text such as `64MiB`, `16kB` or `8`.

    Raises:
        UsageError: it is no size.
    """
    digits = len(text) - len(text.lstrip("0123456789"))
    unit = text[digits:].strip().lower()
    if not 0 < digits <= 12 or unit not in _UNITS or int(text[:digits]) == 0:
        raise UsageError(
            f"{label} must be a whole number of bytes above 0, such as 64MiB, 16kB or 8, given {text[:40]!r}"
        )
    return int(text[:digits]) * _UNITS[unit]


def sizes(smallest: int, largest: int, factor: float) -> tuple[int, ...]:
    """Return sizes from `smallest` up to `largest`, each `factor` times the one before.

    Raises:
        UsageError: that is no series.
    """
    if not smallest <= largest or not 1.01 <= factor <= 1e6:
        raise UsageError(
            f"sizes from {smallest} to {largest} bytes by a factor of {factor:g}: --min must not exceed --max, "
            "and --factor must be from 1.01 to 1000000"
        )
    found = [float(smallest)]
    while (following := found[-1] * factor) <= largest * (1 + 1e-9):
        found.append(following)
    return tuple(dict.fromkeys(round(size) for size in found))
