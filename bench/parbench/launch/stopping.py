"""What Ctrl-C and SIGTERM mean while a sweep runs: once, stop soon and keep what is measured; twice, stop now."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import final

_GRACE_S = 10.0


@final
class StopRequest:
    """Counts requests to stop; as a context manager it listens to the signals of the main thread."""

    def __init__(self) -> None:
        self._count = 0
        self._first_s = 0.0
        self._signal = signal.SIGINT
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self.ask(signal.Signals(number))

    def ask(self, number: signal.Signals = signal.SIGINT) -> None:
        """Request a stop, as if `number` had arrived."""
        self._count += 1
        if self._count == 1:
            self._first_s = time.monotonic()
            self._signal = number

    @property
    def asked(self) -> bool:
        """Whether to stop at the next step boundary the ranks share."""
        return self._count > 0

    @property
    def now(self) -> bool:
        """Whether to stop without waiting for anything."""
        return self._count > 1 or (self.asked and time.monotonic() - self._first_s > _GRACE_S)

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self._signal
