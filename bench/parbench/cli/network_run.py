"""What `parbench network bench` and `calibrate` share: what was asked for, ranks that measure it, and where it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, get_args

from parbench.errors import ParbenchError, RankFailed, Stuck, UsageError, unknown_name

if TYPE_CHECKING:
    from parbench.network.bench import Measured, Wanted
    from parbench.network.calibration import Calibration
    from parbench.session import Session
    from parbench.spec import Backend, Device


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked to be measured; `algorithms` is None where all that can be are meant."""

    ops: Sequence[str]
    algorithms: Sequence[str] | None
    ranks: Sequence[int]
    smallest: str
    largest: str
    factor: float
    dtype: str
    warm_up: int
    iterations: int
    links: str | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the buffers."""
        from parbench.network.collectives import size_of, sizes

        return sizes(size_of(self.smallest, "--min"), size_of(self.largest, "--max"), self.factor)

    def check_sizes(self) -> None:
        """Refuse fewer sizes than a calibration needs."""
        from parbench.network.calibrate import FEWEST_SIZES

        if (n := len(self.sizes)) < FEWEST_SIZES:
            raise UsageError(f"{n} sizes are too few: a calibration needs {FEWEST_SIZES}; widen --min and --max")

    def wanted(self, device: str, backend: str) -> list[Wanted]:
        """Return what to measure; whatever cannot be meant is refused here, before anything starts."""
        import psutil

        from parbench.launch.place import Machine, place
        from parbench.network.bench import ALGORITHMS, check_memory, series
        from parbench.network.spelling import parse_network

        network = None if self.links is None else parse_network(self.links)
        algorithms = self.algorithms
        on_gpu = place(_device(device), _backend(backend), max(self.ranks), Machine.here()).device == "cuda"
        if on_gpu and "ring" in (algorithms or ()):
            raise UsageError("--algorithm ring moves CPU tensors; use --device cpu, or --algorithm native")
        found = series(
            self.ops,
            algorithms or (["native"] if on_gpu else ALGORITHMS),
            sorted(set(self.ranks)),
            self.sizes,
            dtype=self.dtype,
            warm_up=self.warm_up,
            iterations=self.iterations,
            alpha_s=network.alpha_s if network else 0.0,
        )
        check_memory(found, psutil.virtual_memory().available)
        return found


@dataclass(slots=True)
class Done:
    """What was measured, on what, and how it ended."""

    measured: list[Measured] = field(default_factory=list)
    backend: str = ""
    device: str = ""
    device_names: tuple[str, ...] = ()
    link: str = ""
    chosen: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    exit_code: int = 0


def measure(
    wanted: Sequence[Wanted], links: str | None, device: str, backend: str, timeout_s: float, budget_s: float
) -> Done:
    """Start ranks, once per group size, and measure; what was measured until a failure or Ctrl-C is kept."""
    from parbench.launch.failure import Stopped
    from parbench.launch.stopping import StopRequest
    from parbench.network.bench import run
    from parbench.network.calibration import LOOPBACK
    from parbench.network.spelling import parse_network
    from parbench.session import Session

    network = parse_network(links) if links is not None else None
    done = Done(link=network.text if network else LOOPBACK)
    try:
        with StopRequest() as stop, _progress(len(wanted)) as say:
            for n in sorted({one.ranks for one in wanted}):
                with Session(
                    n,
                    device=_device(device),
                    backend=_backend(backend),
                    timeout_s=timeout_s,
                    stop=stop,
                    network=links if network else None,
                ) as session:
                    _describe(done, session)
                    here = [one for one in wanted if one.ranks == n]
                    for found in run(here, session.ranks, budget_s=budget_s, say=say):
                        done.measured.append(found)
    except Stopped as stopped:
        done.notes.append(f"{stopped}: {len(done.measured)} of {len(wanted)} were measured")
        done.exit_code = stopped.exit_code
    except (RankFailed, Stuck) as error:
        if not done.measured:
            raise
        done.notes.append(f"{_sentence(error)} ({len(done.measured)} of {len(wanted)} were measured)")
        done.exit_code = error.exit_code
    done.notes += _remarks(done)
    return done


def calibrated(done: Done) -> Calibration:
    """Fit what was measured."""
    import datetime

    from parbench import environment
    from parbench.network.calibrate import curves_of, reducing_of
    from parbench.network.calibration import Calibration

    devices = {f"cuda:{k}": name for k, name in enumerate(done.device_names) if done.device == "cuda"}
    machine = environment.capture(devices=devices)
    curves = curves_of(done.measured)
    return Calibration(
        fingerprint=machine.fingerprint,
        software=machine.software,
        link=done.link,
        backend=done.backend,
        device=done.device,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        curves=curves,
        reducing=reducing_of(curves),
        chosen=done.chosen,
    )


def _describe(done: Done, session: Session) -> None:
    done.backend, done.device = session.placement.backend, session.placement.device
    done.device_names = session.ranks.device_names
    done.chosen = {name: f"{one.value} ({one.because})" for name, one in session.chosen.items()}


def _remarks(done: Done) -> Iterator[str]:
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = max((one.wanted.ranks for one in done.measured), default=0)
    if done.device == "cpu" and most > cores:
        yield f"{most} ranks share {cores} cores: times of small messages hold for this machine only"
    if any(one.wanted.alpha_s for one in done.measured):
        yield "alpha is slept once per collective, in the ring's thread; native collectives keep the machine's own"
    if any(one.sent_bytes is None for one in done.measured):
        yield f"wire bytes are unavailable: nothing counts what {done.backend} moves without sockets"
    for one in done.measured:
        if one.wrong:
            yield f"WRONG: {one.wanted.op} ({one.wanted.algorithm}) of {one.wanted.bytes} bytes: {one.wrong}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Wanted], None]]:
    """Show on stderr what is being measured, where it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(
        *columns,
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("starting ranks", total=total)
        begun = 0

        def say(one: Wanted) -> None:
            nonlocal begun
            what = f"{one.op} ({one.algorithm}), {one.ranks} ranks, {one.bytes} bytes"
            bar.update(task, completed=begun, description=what)
            begun += 1

        yield say


def _sentence(error: ParbenchError) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", [])])


def _device(text: str) -> Device:
    from parbench.spec import Device

    _known("device", text, get_args(Device))
    return cast("Device", text)


def _backend(text: str) -> Backend:
    from parbench.spec import Backend

    _known("backend", text, get_args(Backend))
    return cast("Backend", text)


def _known(kind: str, text: str, allowed: Sequence[str]) -> None:
    if text not in allowed:
        raise unknown_name(kind, text, allowed, "parbench network bench --help")
