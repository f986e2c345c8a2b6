"""Compilations is a watch that runs while torch compiles in this process, whoever asked for it."""

from __future__ import annotations

import time
from typing import final

from torch._dynamo.callback import CallbackArgs, callback_handler


@final
class Compilations:
    """Adds up the seconds in which something was being compiled, from when it is made."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._running = 0
        self._started_s = 0.0
        callback_handler.register_start_callback(self._start)
        callback_handler.register_end_callback(self._stop)

    def _start(self, what: CallbackArgs) -> None:
        self._running += 1
        if self._running == 1:
            self._started_s = time.perf_counter()

    def _stop(self, what: CallbackArgs) -> None:
        self._running -= 1
        if self._running == 0:
            self.total_s += time.perf_counter() - self._started_s
