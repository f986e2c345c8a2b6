"""Awaiting keys of a store without standing in the way: a client asks again and again instead of waiting inside it.

A client of torch's store that waits keeps all other threads of the same client waiting, and a second client cannot be
had by a rank behind a shaped link, which joined the store before it went there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from torch.distributed.distributed_c10d import Store

_FIRST_PAUSE_S: Final = 50e-6
_LONGEST_PAUSE_S: Final = 1e-3


def awaited(store: Store, keys: Sequence[str], between: Callable[[], None] = lambda: None) -> list[bytes]:
    """Return what is under `keys` once all of them are there.

    Args:
        store: where they will be.
        keys: names.
        between: called between two looks; what it raises ends the wait.

    Raises:
        TimeoutError: a key did not come in the time that the store gives its clients.
    """
    timeout_s: float = store.timeout.total_seconds()  # type: ignore[attr-defined] # the stubs lack it
    deadline_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while not store.check(list(keys)):
        between()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"timed out after {timeout_s:g} s waiting for {', '.join(keys)} in the store")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    found: list[bytes] = store.multi_get(list(keys))
    return found
