"""Threshold scaling keeps the number of elements above a threshold near the wanted one (MiCRO, Yoon and Oh, 2023)."""

from __future__ import annotations

from typing import final


@final
class ThresholdScaling:
    """A threshold per key, moved a little in every step.

    Args:
        mended: whether it is also lowered where slightly too few are chosen. The published code means to, but asks for
            a ratio above 0 instead of 1, so that it settles where about a tenth is missing.
    """

    def __init__(self, *, mended: bool) -> None:
        self._mended = mended
        self._last: dict[str, tuple[float, int]] = {}  # key -> threshold, how many were chosen by it

    def threshold(self, key: str, wanted: int) -> float:
        """Return the threshold of this step: at first 1 / (2 sqrt(wanted))."""
        if key not in self._last:
            return float(1 / (2 * wanted**0.5))
        threshold, chosen = self._last[key]
        return threshold * self._factor(chosen / wanted)

    def chose(self, key: str, threshold: float, count: int) -> None:
        """Note how many were chosen, over all ranks."""
        self._last[key] = threshold, count

    def _factor(self, ratio: float) -> float:
        if ratio > 1.1:
            return 1.005
        if ratio > 1 / 1.1:
            return 0.9987 if self._mended and ratio <= 1 else 1.00125
        return 0.995
