"""An annotation says in a rank's trace what time is spent on; where nothing is traced it costs next to nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from torch.autograd import profiler

from parbench.tracing.names import PREFIX
from parbench.tracing.spans import Kind

_NOTHING: Final = nullcontext()


def annotated(kind: Kind) -> AbstractContextManager[object]:
    """Return the context in which the calling thread's time is spent on `kind`."""
    return named(kind)


def named(name: str) -> AbstractContextManager[object]:
    """Return the context that appears in the trace as `parbench:` and this name."""
    # A flag of the whole process: a span is opened several times per step, and opening one takes microseconds.
    return profiler.record_function(f"{PREFIX}{name}") if profiler._is_profiler_enabled else _NOTHING
