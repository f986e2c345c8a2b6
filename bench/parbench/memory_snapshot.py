"""A memory snapshot is the history of CUDA's allocator while one variant was weighed, for pytorch.org/memory_viz.

It is a pickle, written by torch and never read here: only the page that draws it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

# Events kept: about 200 bytes each; the oldest are dropped.
_MOST_EVENTS = 200_000


@contextmanager
def snapshot(path: Path | None, device: torch.device) -> Iterator[None]:
    """Record what the allocator does in this context, with the Python lines that asked for it, and write it down.

    Args:
        path: of the file; None records nothing.
        device: whose allocator; the host's has no such history.
    """
    if path is None or device.type != "cuda":
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS, device=device)
    try:
        yield
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None, device=device)
