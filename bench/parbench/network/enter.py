"""Entering puts a process into the namespace of its link: before it has threads, and sockets other than the store's."""

from __future__ import annotations

import ctypes
import os
import sys

from parbench.network.seat import NetworkSeat

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def enter(seat: NetworkSeat) -> None:
    """Move this process into the network namespace of `seat`; sockets it has stay where they are.

    It must have one thread: others would stay behind, and the kernel lets no process with several change its user
    namespace.

    Raises:
        OSError: the namespace is gone, or this process may not enter it.
    """
    # Both are opened first: in another user namespace this process may see other files.
    net = os.open(seat.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if seat.user_namespace:
            user = os.open(seat.user_namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(user, _CLONE_NEWUSER, seat.user_namespace)
            finally:
                os.close(user)
        _setns(net, _CLONE_NEWNET, seat.namespace)
    finally:
        os.close(net)


def _setns(descriptor: int, kind: int, path: str) -> None:
    if sys.version_info >= (3, 12):
        os.setns(descriptor, kind)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter the namespace: {os.strerror(number)}", path)
