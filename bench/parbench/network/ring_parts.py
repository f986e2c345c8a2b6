"""What one collective moves for one rank: bytes to send, places for bytes that arrive, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Put:
    """Bytes that arrive go to `target`."""

    target: memoryview

    @property
    def nbytes(self) -> int:
        """How many."""
        return self.target.nbytes


@dataclass(frozen=True, slots=True)
class Add:
    """Elements that arrive, `nbytes` of them, are added to `own`; `result` (which may be `own`) gets the sums."""

    own: Tensor
    result: Tensor
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One collective of one rank, in bytes.

    Attributes:
        title: what it is, for messages.
        outgoing: header and parts, in order.
        ready_bytes: leading bytes of `outgoing` that need nothing to arrive.
        header: where the previous rank's header goes.
        check: called when it has arrived.
        incoming: parts, in order.
    """

    title: str
    outgoing: Sequence[memoryview]
    ready_bytes: int
    header: memoryview
    check: Callable[[], None]
    incoming: Sequence[Put | Add]
