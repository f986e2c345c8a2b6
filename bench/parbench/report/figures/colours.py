"""Colours and marks of strategies, for colour-blind readers and in grey, the same in all figures of a report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parbench.comparable import REFERENCE

# Okabe and Ito, "Color universal design", 2008, without black and yellow, which vanish on dark and on light pages.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
NEUTRAL = "#5f5f5f"
_MARKERS = ("o", "s", "^", "D", "v", "P")
_HATCHES = ("", "///", "||", "xxx", "---", "\\\\\\")


@dataclass(frozen=True, slots=True)
class Mark:
    """How one strategy is drawn: a colour, and a marker and a hatch for whoever sees none."""

    colour: str
    marker: str
    hatch: str


Palette = Mapping[str, Mark]


def palette(strategies: Iterable[str]) -> dict[str, Mark]:
    """Return the mark of every strategy.

    A strategy's name decides which colour it would like, so that it has the same one in other reports; where two
    of a report would like the same, the later of them by name gets the next that is free. The reference is grey. More
    strategies than colours take a colour again with another hatch.
    """
    found: dict[str, Mark] = {}
    taken: set[int] = set()
    for name in sorted(set(strategies)):
        if name == REFERENCE:
            found[name] = Mark(NEUTRAL, "o", "")
            continue
        if len(taken) % len(COLOURS) == 0:
            turn = len(taken) // len(COLOURS)
        wished = int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:4], "big") % len(COLOURS)
        slots = (turn * len(COLOURS) + (wished + k) % len(COLOURS) for k in range(len(COLOURS)))
        slot = next(slot for slot in slots if slot not in taken)
        taken.add(slot)
        colour, again = slot % len(COLOURS), slot // len(COLOURS) % len(_HATCHES)
        found[name] = Mark(COLOURS[colour], _MARKERS[(colour + again) % len(_MARKERS)], _HATCHES[again])
    return found
