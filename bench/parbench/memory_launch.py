"""A memory launch holds one variant alone, in fresh ranks that give freed memory back, and weighs it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from parbench.errors import ParbenchError
from parbench.launch.failure import RankLost, RanksStuck
from parbench.launch.stopping import StopRequest
from parbench.observed import Weighed
from parbench.registry import Registry
from parbench.session import Session, Variant
from parbench.spec import RunSpec

T = TypeVar("T")
OpenAlone = Callable[[RunSpec, Path], Session]


def weighed(open_alone: OpenAlone, spec: RunSpec, snapshot: Path | None = None) -> tuple[Weighed, ...]:
    """Return the memory of every rank of `spec`.

    Args:
        open_alone: starts ranks that can be weighed, and write their logs into a folder.
        spec: what they hold; its links are left out, they hold nothing.
        snapshot: folder for what allocators of GPUs did; None keeps nothing.

    Raises:
        RankLost, RanksStuck: a rank failed, or ran out of memory.
        ParbenchError: the variant cannot run here.
    """
    return alone(open_alone, spec, lambda variant: variant.weigh(snapshot))


def alone(open_alone: OpenAlone, spec: RunSpec, do: Callable[[Variant], T]) -> T:
    """Do something with one variant in fresh ranks that hold nothing else; raises as `weighed`."""
    spec = msgspec.structs.replace(spec, network=None)
    with tempfile.TemporaryDirectory(prefix="parbench-", ignore_cleanup_errors=True) as logs:
        session = open_alone(spec, Path(logs))
        try:
            found = do(session.add(spec, refuse=False))
        except BaseException:
            session.kill()
            raise
        session.close()
        return found


def weighed_or_why(open_alone: OpenAlone, spec: RunSpec, snapshot: Path | None = None) -> tuple[Weighed, ...] | str:
    """Return the memory of every rank, or a sentence saying why it could not be measured."""
    try:
        return weighed(open_alone, spec, snapshot)
    except (RankLost, RanksStuck, ParbenchError) as error:
        return f"the launch that measures memory failed: {error}"


def alone_in(registry: Registry, stop: StopRequest, *, weigh: bool = True) -> OpenAlone:
    """Return what starts fresh local ranks, such as can be weighed or such as are timed."""

    def opened(spec: RunSpec, logs: Path) -> Session:
        return Session(
            spec.world_size,
            device=spec.device,
            backend=spec.backend,
            threads=spec.threads,
            timeout_s=spec.timeout_s,
            plugins=registry.plugins,
            log_folder=logs,
            stop=stop,
            weigh=weigh,
            memory_gib=spec.memory_gib,
        )

    return opened
