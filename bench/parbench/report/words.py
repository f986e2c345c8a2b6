"""Numbers and names in words: a value with the unit and digits that fit, text that cannot steer a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

from parbench.record import Metric

# Spelled by name: they look like letters of the keyboard and are not.
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

# What follows a number that is not simply measured.
SIGNS = {"suspect": " ?", "unavailable": " ?", "estimated": " ~", "paced": " ~", "simulated": " ~"}

_DURATIONS = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "µs", 1e6))
_PREFIXES = ((1e9, "G", 1e-9), (1e6, "M", 1e-6), (1e3, "k", 1e-3), (0.0, "", 1.0))
_BYTES = ((2**30, "GiB", 2**-30), (2**20, "MiB", 2**-20), (2**10, "KiB", 2**-10), (0.0, "B", 1.0))


def distinct(texts: Iterable[str], longest: int) -> dict[str, str]:
    """Return each text in at most so many characters; those that are cut alike are numbered."""
    found: dict[str, str] = {}
    taken: dict[str, int] = {}
    for text in dict.fromkeys(texts):
        short = visible(text, longest)
        taken[short] = taken.get(short, 0) + 1
        again = f" ({taken[short]})" if taken[short] > 1 else ""
        found[text] = visible(text, longest - len(again)) + again
    return found


def visible(text: object, longest: int = 500) -> str:
    r"""Return text in which everything that is not printable is spelled out (`\x1b`), cut in the middle if too long.

    Names and messages come from files and plug-ins: an escape in them must not reach the terminal.
    """
    spelled = "".join(char if char.isprintable() else _spelled(char) for char in str(text)[: longest * 2])
    if len(spelled) <= longest:
        return spelled
    tail = (longest - 1) // 3
    return spelled[: longest - 1 - tail] + "…" + spelled[len(spelled) - tail :]


def lines(text: str) -> str:
    """Return several lines of text, each one visible; trailing space goes."""
    return "\n".join(visible(line, 2000).rstrip() for line in text.split("\n"))


def number(value: float, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits, without an exponent where that stays readable."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    # Of the rounded value: 0.9996 is 1.00, not 1.000.
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if not -4 <= magnitude < 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def small(value: float) -> str:
    """Return a difference, such as 3e-7."""
    if value == 0 or not math.isfinite(value):
        return number(value)
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def amount(metric: Metric) -> str:
    """Return value and unit of a metric, such as `1.23 ms`; a dash where it was not measured."""
    if metric.value is None:
        return DASH
    factor, unit = scale(metric.value, metric.unit)
    return f"{number(metric.value * factor)} {unit}".strip()


def with_interval(metric: Metric) -> str:
    """Return value, interval and unit of a metric, such as `1.23 [1.20, 1.31] ms`."""
    if metric.value is None or metric.ci_low is None or metric.ci_high is None:
        return amount(metric)
    factor, unit = scale(metric.value, metric.unit)
    low, value, high = (number(x * factor) for x in (metric.ci_low, metric.value, metric.ci_high))
    return f"{value} [{low}, {high}] {unit}".strip()


def duration(value_s: float) -> str:
    """Return a time for a reader in a hurry, such as `1 min 20 s`."""
    if value_s < 60:
        factor, unit = scale(value_s, "s")
        return f"{number(value_s * factor, 2)} {unit}"
    minutes, seconds = divmod(round(value_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def size(value: float) -> str:
    """Return a number of bytes, such as `1.23 MiB`."""
    factor, unit = scale(value, "bytes")
    return f"{number(value * factor)} {unit}"


def several(items: Iterable[str], last: str = "and") -> str:
    """Join as a sentence does: `a, b and c`."""
    listed = list(items)
    return f" {last} ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))


def _spelled(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def scale(value: float, unit: str) -> tuple[float, str]:
    """Return what to multiply by so that `value` reads well, and the unit that this makes of `unit`."""
    if unit == "s":
        return next((factor, name) for least, name, factor in _DURATIONS if abs(value) >= least)
    if unit == "bytes":
        return next((factor, name) for least, name, factor in _BYTES if abs(value) >= least)
    if unit.endswith("/s"):
        prefix, factor = next((name, factor) for least, name, factor in _PREFIXES if abs(value) >= least)
        return factor, prefix + unit if unit == "bit/s" else f"{prefix} {unit}".strip()
    return 1.0, unit
