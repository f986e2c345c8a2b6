"""An Event is one line of a sweep's progress, for whoever watches: a terminal, a notebook, a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened in a sweep.

    Attributes:
        kind: "plan" once at the start; "phase" when a case enters one; "round" after each measured round; "case" when a
            case has ended; "warning" for what its numbers must be read with; "skip" for a case whose finished record is
            taken over; "note" for a sentence worth showing.
        case: the cell it is about, in words.
        cell: 0-based index of the cell in the sweep.
        done: cases ended so far.
        total: cases of the sweep, repeats counted.
        phase: what the case is doing.
        step: measured steps done so far in this case.
        steps: measured steps planned in this case.
        median_s: running median step time.
        ci_low_s: lower end of its 95 % interval, where there is one.
        ci_high_s: upper end.
        message: a sentence, for "note", "warning" and failed cases.
    """

    kind: Literal["plan", "phase", "round", "case", "warning", "skip", "note"]
    case: str = ""
    cell: int | None = None
    done: int = 0
    total: int = 0
    phase: str = ""
    step: int = 0
    steps: int = 0
    median_s: float | None = None
    ci_low_s: float | None = None
    ci_high_s: float | None = None
    message: str = ""


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore `event`."""
