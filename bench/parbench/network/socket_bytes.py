"""Socket bytes: what this process has handed to its TCP connections so far, as the kernel counts it.

Any backend that moves data over TCP is counted, gloo included, without rights and on loopback too. Headers of TCP and
IP and retransmissions are left out; the backend's own headers are not.
"""

from __future__ import annotations

import os
import socket
import struct

# struct tcp_info of linux/tcp.h: bytes not yet sent, sent ever, and of these sent again.
_NOT_SENT, _SENT = struct.Struct("=144xI"), struct.Struct("=200xQQ")
_INFO_BYTES = 232


def queued_bytes() -> int | None:
    """Return the sum over the TCP connections of this process; None where the kernel does not count."""
    total = 0
    for descriptor in _descriptors():
        found = _of(descriptor)
        if found is None:
            return None
        total += found
    return total


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return []


def _of(descriptor: int) -> int | None:
    try:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):  # noqa: PTH115
            return 0
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
                return 0
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return 0  # closed meanwhile
    if len(info) < _SENT.size:
        return None  # a kernel before 4.19
    (waiting,), (sent, again) = _NOT_SENT.unpack_from(info), _SENT.unpack_from(info)
    return int(waiting + sent - again)
