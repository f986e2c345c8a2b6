"""The forkserver has torch loaded and forks a fresh process for every rank, in hundredths of a second."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess

import psutil

from parbench.errors import ParbenchError
from parbench.launch.failure import Stopped
from parbench.launch.pipe import Pipe
from parbench.launch.stopping import StopRequest

Main = Callable[[bytes, Pipe, Pipe], None]

_PRELOAD = "parbench.launch.preload"
# Read when the C++ side loads: it warns about every client whose host name cannot be looked up.
_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
_HELD_BACK = {signal.SIGINT, signal.SIGTERM}
_POLL_S = 0.1
_loading: list[Future[None]] = []


def begin_forkserver() -> None:
    """Start the forkserver unless it runs, and return at once: it loads torch while its launcher does."""
    if not _loading or (_loading[0].done() and _loading[0].exception() is not None):
        _loading[:] = [_load()]


def give_up_forkserver() -> None:
    """End a forkserver that is still loading; one that has loaded waits for the next launch."""
    if _loading and not _loading[0].done():
        _end_loading()


def ensure_forkserver(stop: StopRequest) -> None:
    """Start the forkserver unless it runs, and wait until it has everything loaded.

    Args:
        stop: asked meanwhile: loading torch takes seconds.

    Raises:
        ParbenchError: it cannot start a process.
        Stopped: the user asked to stop.
    """
    begin_forkserver()
    while not _loading[0].done():
        if stop.asked:
            _end_loading()
            raise Stopped(stop.exit_code)
        wait(_loading, _POLL_S)
    error = _loading[0].exception()
    if error is not None and stop.asked:
        raise Stopped(stop.exit_code)
    if error is not None:
        raise ParbenchError(f"the forkserver, which has torch loaded for the ranks, ended early: {error!r}") from error


def _load() -> Future[None]:
    """Start the forkserver and, in a thread, its first process, which exists once the server's imports are done."""
    context = _context()
    context.set_forkserver_preload([_PRELOAD])
    # A terminal sends Ctrl-C to the forkserver too, which would end it amid its imports: what is held back when it
    # starts stays held back in it. Starting the tracker ends every hold, so that comes first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        with _environment(), _bare_main_module():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    first = context.Process(target=_nothing, daemon=True)
    loaded: Future[None] = Future()
    threading.Thread(target=_start, args=(first, loaded), name="parbench-forkserver", daemon=True).start()
    return loaded


def _end_loading() -> None:
    # It would load on for seconds after its launcher has ended, holding whatever reads the launcher's output.
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if _PRELOAD in " ".join(child.cmdline()):
                child.kill()


def _start(first: ForkServerProcess, loaded: Future[None]) -> None:
    try:
        with _bare_main_module():
            first.start()
        first.join()
        if first.exitcode != 0:
            raise ParbenchError(f"its first process ended with exit code {first.exitcode}")
    except BaseException as error:  # noqa: BLE001 - it is raised again by whoever waits
        loaded.set_exception(error)
    else:
        loaded.set_result(None)


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
