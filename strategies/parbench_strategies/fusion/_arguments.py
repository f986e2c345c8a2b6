"""Arguments of fusion rules are refused where no exchange can be meant: 0, negative, endless, no number."""

from __future__ import annotations

_MEGABYTE = 1024 * 1024
_MOST_MEGABYTES = 1024 * 1024


def bytes_of_megabytes(name: str, megabytes: float) -> int:
    """Return the bytes of a size in megabytes of 1024 x 1024 bytes, as torch counts them.

    Raises:
        ValueError: it is less than one byte or more than a terabyte.
    """
    if not 1 / _MEGABYTE <= megabytes <= _MOST_MEGABYTES:
        raise ValueError(f"{name} is megabytes, from one byte to {_MOST_MEGABYTES}, given {megabytes!r}")
    return int(megabytes * _MEGABYTE)


def checked_count(name: str, count: int, least: int, most: int) -> int:
    """Return a whole number within its bounds.

    Raises:
        ValueError: it is outside.
    """
    if not least <= count <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}, given {count}")
    return count
