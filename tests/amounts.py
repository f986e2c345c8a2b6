"""How much of a long test is done: all of it by hand, a part of it in continuous integration, which has an hour."""

import os
from typing import TypeVar

T = TypeVar("T")
IN_CI = bool(os.environ.get("CI"))


def amount(whole: T, in_ci: T) -> T:
    """Return the whole, or the part that continuous integration does."""
    return in_ci if IN_CI else whole
