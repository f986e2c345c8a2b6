"""Stores: the small key-value servers where ranks meet; the one door to torch's, which its stubs leave out."""

from __future__ import annotations

import datetime
import socket
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    PrefixStore = TCPStore = Store
else:
    Store, PrefixStore, TCPStore = dist.Store, dist.PrefixStore, dist.TCPStore

__all__ = ["Store", "joined", "opened", "under"]


def opened(host: str, timeout_s: float) -> tuple[Store, int]:
    """Open a store that listens on `host` only, on a port of the system's choice, and return it with the port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(1024)
    port: int = listener.getsockname()[1]
    # torch's own listener would accept connections from anywhere; one that is bound already does not.
    store = TCPStore(  # type: ignore[call-arg]
        host,
        port,
        None,
        is_master=True,
        timeout=datetime.timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def joined(host: str, port: int, timeout_s: float) -> Store:
    """Return a client of the store at `host` and `port`."""
    timeout = datetime.timedelta(seconds=timeout_s)
    return TCPStore(host, port, None, is_master=False, timeout=timeout)  # type: ignore[call-arg]


def under(prefix: str, store: Store) -> Store:
    """Return the part of `store` whose keys begin with `prefix`."""
    return PrefixStore(prefix, store)  # type: ignore[call-arg]
