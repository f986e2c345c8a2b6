"""A percentage as users write it: `3%`, `3 %` or `0.03`."""

from __future__ import annotations

import math

from parbench.errors import UsageError


def fraction(text: str, what: str) -> float:
    """Return the fraction that `text` says.

    Args:
        text: a number with or without a per cent sign.
        what: the option, for the error.

    Raises:
        UsageError: it is no number, or not between 0 and 100 %.
    """
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise UsageError(f"{what} {text[:40]!r} is no fraction; give a percentage such as 3% (or 0.03), below 100%")
    return value
