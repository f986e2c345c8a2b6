"""A StepNote says which training step a rank is in, in memory that outlives the rank: pulses are too rare for that."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import final

_FORM = struct.Struct("=q")
_NOWHERE = -1


@final
class StepNote:
    """The writing side: a few bytes of a file, shared with whoever reads it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(_FORM.pack(_NOWHERE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)

    def write(self, step: int | None) -> None:
        """Note the step being taken, or that none is."""
        self._memory[:] = _FORM.pack(_NOWHERE if step is None else step)


def noted_step(path: Path) -> int | None:
    """Return the step that was noted last, by a rank that may be dead by now; None outside steps or without a note."""
    try:
        (step,) = _FORM.unpack(path.read_bytes())
    except (OSError, struct.error):
        return None
    return None if step == _NOWHERE else int(step)


def note_beside(log: Path) -> Path:
    """Return the path of the note of the rank that writes `log`."""
    return log.with_suffix(".step")
