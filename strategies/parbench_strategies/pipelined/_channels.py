"""Channels carry what stages give each other: one message stream per kind and direction, each in the order it is sent.

Without tags (NCCL has none) messages between two ranks are told apart by their order alone. Every schedule takes
activations in the order in which they are sent, and gradients too, but not both together; and what goes up must not
wait behind what goes down. So activations and gradients, up and down, have a group each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from torch import Tensor

from parbench.api import Comm, Handle
from parbench.schedule import Transfer


def _stream(transfer: Transfer) -> int:
    return 2 * transfer.gradient + (transfer.source > transfer.target)


@final
class Channels:
    """Sends and receives between the ranks of one pipeline.

    Args:
        comm: the ranks of the pipeline.
        transfers: everything that any rank sends; all ranks give the same.
    """

    def __init__(self, comm: Comm, transfers: Iterable[Transfer]) -> None:
        needed = sorted({_stream(one) for one in transfers if one.source != one.target})
        # Copy 0 is the pipeline's own group.
        self._comms = {stream: comm.subset(range(comm.world_size), copy=1 + stream) for stream in needed}
        self._sending: list[Handle] = []

    def send(self, transfer: Transfer, tensor: Tensor) -> None:
        """Start sending; the tensor must not be changed."""
        self._sending = [handle for handle in self._sending if not handle.done()]
        self._sending.append(self._comms[_stream(transfer)].send_async(tensor.contiguous(), transfer.target))

    def receive(self, transfer: Transfer, into: Tensor) -> Handle:
        """Start receiving."""
        return self._comms[_stream(transfer)].receive_async(into, transfer.source)

    def flush(self) -> None:
        """Return once everything has left."""
        for handle in self._sending:
            handle.wait()
        self._sending.clear()
