"""What is sent may be half precision, whatever the type in memory is."""

from __future__ import annotations

from torch import Tensor


def bytes_on(half: bool, element_bytes: int) -> int:
    """Return the bytes of a number on the wire, which has so many in memory."""
    return 2 if half else element_bytes


def sent_on(half: bool, values: Tensor) -> Tensor:
    """Return values as they are sent."""
    return values.half() if half else values
