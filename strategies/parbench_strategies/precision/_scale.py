"""A loss scale keeps small gradients from vanishing in half precision; a dynamic one seeks how large it may be.

    step      ok   ok   overflow   ok  ...  2,000 steps without one   ok
    scale     S    S    S          S/2                                S

Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from __future__ import annotations

from typing import Final, final

_GROWS_AFTER: Final = 2000  # steps without overflow
_LEAST, _MOST = 2.0**-14, 2.0**24


@final
class Scale:
    """A power of two by which a loss is multiplied.

    Attributes:
        value: at present.
        overflows: steps that were skipped.
        events: the first changes, as (step, new value).

    Args:
        first: to begin with; a power of two, so that scaling rounds nothing.
        dynamic: whether it changes.
    """

    def __init__(self, first: float, *, dynamic: bool) -> None:
        self.value = first
        self.overflows = 0
        self.events: list[tuple[int, float]] = []
        self._dynamic = dynamic
        self._steps = 0
        self._clean = 0

    def update(self, overflowed: bool) -> None:
        """Note how a step went: halve after an overflow, double after many steps without one."""
        self._steps += 1
        self.overflows += overflowed
        self._clean = 0 if overflowed else self._clean + 1
        if not self._dynamic:
            return
        if overflowed:
            self._set(max(_LEAST, self.value / 2))
        elif self._clean % _GROWS_AFTER == 0:
            self._set(min(_MOST, self.value * 2))

    def _set(self, value: float) -> None:
        if value != self.value and len(self.events) < 10:
            self.events.append((self._steps, value))
        self.value = value
