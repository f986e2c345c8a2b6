"""Sleeping exactly: until a deadline, in a thread whose timer is not allowed to be late."""

from __future__ import annotations

import ctypes
import time

_PR_SET_TIMERSLACK = 29


def wake_on_time() -> None:
    """Let sleeps of the calling thread end within microseconds of their time; by default they are 50 to 110 us late."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return  # not Linux: sleeps are a little late


def sleep_exactly(seconds: float) -> None:
    """Sleep for `seconds`, not less, whatever interrupts it."""
    deadline_s = time.perf_counter() + seconds
    while (left_s := deadline_s - time.perf_counter()) > 0:
        time.sleep(left_s)
