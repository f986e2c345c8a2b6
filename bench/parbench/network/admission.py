"""Admission says whether a network may be had by a launch at all, before anything is started."""

from __future__ import annotations

import os

from parbench.errors import UsageError
from parbench.network.plan import check_capacity, plan, tag_of
from parbench.network.spelling import Network, parse_network
from parbench.spec import Backend


def admitted(text: str | None, world_size: int, backend: Backend) -> Network | None:
    """Return the network that `text` asks for, or None where it asks for none.

    Args:
        text: as the user wrote it.
        world_size: ranks of the launch.
        backend: what is to move their tensors.

    Raises:
        UsageError: it cannot be meant, this machine cannot carry it, or the backend does not use such links.
    """
    network = None if text is None else parse_network(text)
    if network is None:
        return None
    if backend == "nccl":
        raise UsageError(
            f"--network {text} shapes network links, which NCCL does not use inside a machine; use --backend gloo"
        )
    check_capacity(network, world_size, len(os.sched_getaffinity(0)))
    plan(network, world_size, tag_of("check", 0))
    return network


def linked(backend: Backend, shaped: bool) -> Backend:
    """Return the backend of a launch: over shaped links "auto" is gloo, the one that uses them."""
    return "gloo" if shaped and backend == "auto" else backend
