"""The errors parbench raises, and the exit code each one means on the command line.

ParbenchError
├── CheckFailed       1   a check failed, or what should be compared is not comparable
├── UsageError        2   refused before anything started: the request makes no sense
├── MissingError      3   something asked for is not there (GPU, NCCL, torch, rights)
├── RankFailed        4   a rank raised, exited or was killed
├── Stuck             5   no progress until the deadline
├── StoreError        6   a result could not be stored
└── UnreadableError   7   stored data is truncated, foreign or newer
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class ParbenchError(Exception):
    """Base of everything a caller may want to catch; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class CheckFailed(ParbenchError):
    """A check failed: something got worse, is missing, or was measured where it cannot be compared."""

    exit_code = 1


class UsageError(ParbenchError):
    """The request cannot be meant: unknown name, impossible number, configuration that cannot run."""

    exit_code = 2


class MissingError(ParbenchError):
    """Something asked for is not there: a GPU, a backend, torch, a right."""

    exit_code = 3


class RankFailed(ParbenchError):
    """A rank raised, exited or was killed."""

    exit_code = 4


class Stuck(ParbenchError):
    """No rank made progress until the deadline."""

    exit_code = 5


class StoreError(ParbenchError):
    """A result could not be stored; the numbers are still printed."""

    exit_code = 6


class UnreadableError(ParbenchError):
    """Stored data is truncated, foreign or written by a newer version."""

    exit_code = 7


# When several things went wrong in one sweep, the first of these decides (interruption before everything).
EXIT_PRECEDENCE = (143, 130, 6, 7, 5, 4, 3, 2, 1, 0)


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code that takes precedence among `codes` (0 if there are none)."""
    return min(codes, key=EXIT_PRECEDENCE.index, default=0)


def unknown_name(kind: str, given: str, allowed: Iterable[str], advice: str) -> UsageError:
    """Build the error for a name nobody knows: what was given, what is near, what to do.

    Args:
        kind: what the name should have named, such as "strategy".
        given: the name as the user wrote it.
        allowed: every name that would have been right.
        advice: where the full list is, such as "parbench list strategies".
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"no {kind} named {given[:80]!r}; {hint} ({advice})")
