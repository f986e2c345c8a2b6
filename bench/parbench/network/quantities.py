"""Quantities of links as people write them: `100mbit`, `1ms`, `17000` (bytes); read and written, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parbench.errors import UsageError
from parbench.fields import shown

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)", re.IGNORECASE)
_RATES: Mapping[str, float] = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_TIMES: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def rate_of(value: object, label: str) -> float:
    """Return bits per second of a text such as `100mbit`.

    Raises:
        UsageError: it is no rate, or has no unit.
    """
    return _scaled(value, _RATES, label, "a rate with its unit, such as 100mbit or 2.5gbit")


def time_of(value: object, label: str) -> float:
    """Return seconds of a text such as `1ms`.

    Raises:
        UsageError: it is no time, or has no unit.
    """
    return _scaled(value, _TIMES, label, "a time with its unit, such as 1ms or 500us")


def whole_of(value: object, label: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise UsageError(f"{label} must be a whole number from {low} to {high}, given {shown(value)}; change it")


def number_of(value: object, label: str, low: float, high: float) -> float:
    """Return a number from `low` to `high`.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(f"{value:.12g}")  # as many digits as its text keeps
    raise UsageError(f"{label} must be a number from {low:g} to {high:g}, given {shown(value)}; change it")


def rate_text(bits_per_s: float) -> str:
    """Return the shortest text that `rate_of` reads as `bits_per_s`, in the largest unit that leaves no fraction < 1.

    Rates are kept to 1 bit/s, far below what a shaper can tell apart.
    """
    return _text(round(bits_per_s), (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)))


def time_text(seconds: float) -> str:
    """Return the shortest text that `time_of` reads as `seconds`, kept to 1 ns."""
    return _text(round(seconds * 1e9), (("s", 10**9), ("ms", 10**6), ("us", 10**3)))


def _text(small: int, units: tuple[tuple[str, int], ...]) -> str:
    name, size = next(((name, size) for name, size in units if small >= size), units[-1])
    whole, rest = divmod(small, size)
    digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}{name}" if digits else f"{whole}{name}"


def _scaled(value: object, units: Mapping[str, float], label: str, wanted: str) -> float:
    match = _NUMBER.fullmatch(value) if isinstance(value, str) and len(value) <= 40 else None
    unit = units.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{label} must be {wanted}, given {shown(value)}; units: {', '.join(units)}")
    return float(match.group(1)) * unit
