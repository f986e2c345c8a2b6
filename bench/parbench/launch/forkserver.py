"""The forkserver has torch loaded and forks a fresh process for every rank, in hundredths of a second."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext, ForkServerProcess

from parbench.errors import ParbenchError
from parbench.launch.pipe import Pipe

Main = Callable[[bytes, Pipe, Pipe], None]

_PRELOAD = "parbench.launch.preload"
# Read when the C++ side loads: it warns about every client whose host name cannot be looked up.
_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
_started_s: list[float] = []


def ensure_forkserver() -> float:
    """Start the forkserver unless it runs, wait until it has everything loaded, and return the seconds that took.

    Raises:
        ParbenchError: it cannot start a process.
    """
    if _started_s:
        return _started_s[0]
    before_s = time.perf_counter()
    context = _context()
    context.set_forkserver_preload([_PRELOAD])
    with _environment(), _bare_main_module():
        first = context.Process(target=_nothing, daemon=True)
        first.start()
    first.join()  # it exists only once the server's imports are done
    if first.exitcode != 0:
        raise ParbenchError(f"the forkserver could not start a process (exit code {first.exitcode})")
    _started_s.append(time.perf_counter() - before_s)
    return _started_s[0]


def fork(target: Main, message: bytes, duplex: Pipe, out: Pipe, name: str) -> ForkServerProcess:
    """Run `target(message, duplex, out)` in a fresh process."""
    process = _context().Process(target=target, args=(message, duplex, out), name=name, daemon=True)
    with _bare_main_module():
        process.start()
    return process


def _context() -> ForkServerContext:
    return mp.get_context("forkserver")


def _nothing() -> None:
    """End at once."""


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    added = [name for name in _ENVIRONMENT if name not in os.environ]
    os.environ.update({name: _ENVIRONMENT[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def _bare_main_module() -> Iterator[None]:
    # multiprocessing re-imports the main module in every child: slow for a command line, endless for a user's script
    # without a main guard. Ranks need nothing from it.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
