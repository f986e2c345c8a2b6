"""A link joins a rank to its two neighbours in the ring: one TCP connection to the next rank, one from the previous.

rank r-1  ══data══>  rank r  ══data══>  rank r+1          nothing ever flows back
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parbench.network.ring_errors import PeerGone, PeerStalled

if TYPE_CHECKING:
    from parbench.launch.stores import Store

_TOKEN_BYTES = 16
_HELLO = struct.Struct(f"<{_TOKEN_BYTES}sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """The other end of a connection."""

    rank: int
    address: str
    socket: socket.socket

    def end(self) -> None:
        """End the connection; whoever waits for it, here or there, is woken."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and release it; no thread may wait for it any more."""
        self.end()
        self.socket.close()


def join_neighbours(
    store: Store, rank: int, world_size: int, *, host: str, timeout_s: float
) -> tuple[Neighbour, Neighbour]:
    """Connect to the next rank and let the previous one connect; every rank of the ring calls this.

    Args:
        store: where addresses are exchanged; its keys must be this ring's own.
        rank: this rank.
        world_size: at least 2.
        host: the address of this rank that the previous one can reach.
        timeout_s: seconds for everything together.

    Returns:
        The previous and the next rank, with non-blocking sockets.

    Raises:
        PeerGone: the next rank refused the connection.
        PeerStalled: a neighbour did not come in time.
    """
    deadline_s = time.monotonic() + timeout_s
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    with contextlib.ExitStack() as undo:
        listener = undo.enter_context(socket.create_server((host, 0), family=family, backlog=8))
        token = secrets.token_bytes(_TOKEN_BYTES)
        port: int = listener.getsockname()[1]
        store.set(f"address/{rank}", f"{token.hex()} {port} {host}")
        to_next = _connect(store, rank, after, deadline_s)
        undo.callback(to_next.close)
        from_previous = _accept(listener, token, before, deadline_s)
        undo.pop_all()
        listener.close()
    for one in (from_previous, to_next):
        one.socket.setblocking(False)
        # Buffers are left to the kernel, which sizes them by what the link carries; fixed ones of 2 MiB were no faster.
        one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return from_previous, to_next


def _connect(store: Store, rank: int, after: int, deadline_s: float) -> Neighbour:
    key = f"address/{after}"
    while not store.check([key]):
        if time.monotonic() > deadline_s:
            raise PeerStalled(f"ring: timed out waiting for rank {after}: it never said where it listens", after)
        time.sleep(0.002)
    token, port, host = store.get(key).decode().split(" ", 2)
    address = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, int(port)), timeout=_left(deadline_s))
    except TimeoutError:
        raise PeerStalled(f"ring: timed out waiting for rank {after} at {address} to accept", after) from None
    except OSError as error:
        raise PeerGone(
            f"ring: rank {after} at {address} is gone: connection refused ({error.strerror})", after
        ) from error
    sock.sendall(_HELLO.pack(bytes.fromhex(token), rank))
    return Neighbour(rank=after, address=address, socket=sock)


def _accept(listener: socket.socket, token: bytes, before: int, deadline_s: float) -> Neighbour:
    for sock, address in _visitors(listener, before, deadline_s):
        # Anybody on this host can knock: only who has read the store knows the token.
        sock.settimeout(min(1.0, _left(deadline_s)))
        said = b""
        with contextlib.suppress(OSError):
            while len(said) < _HELLO.size and (more := sock.recv(_HELLO.size - len(said))):
                said += more
        if len(said) == _HELLO.size and _HELLO.unpack(said) == (token, before):
            return Neighbour(rank=before, address=address, socket=sock)
        sock.close()
    raise PeerStalled(f"ring: timed out waiting for rank {before} to connect", before)


def _visitors(listener: socket.socket, before: int, deadline_s: float) -> Iterator[tuple[socket.socket, str]]:
    while time.monotonic() < deadline_s:
        listener.settimeout(_left(deadline_s))
        try:
            sock, address = listener.accept()
        except TimeoutError:
            return
        yield sock, f"{address[0]}:{address[1]}"


def _left(deadline_s: float) -> float:
    return max(0.001, deadline_s - time.monotonic())
