"""ring_socket is a ring over parbench's own sockets, in a thread that sleeps when nothing moves; gloo's spins."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import Collective, Comm, InFlight, Paper, SocketRing, all_reduced, shared_out


@final
class RingSocket(Collective):
    """Adds a tensor as `ring` does, over connections of its own, one tensor after the other.

    Part c of n is added in the order that `parbench.network.ring_plan` states. A rank sends 2(n-1)/n of the tensor, and
    a header.
    """

    name = "ring_socket"
    paper = Paper(
        "Bandwidth optimal all-reduce algorithms for clusters of workstations (Patarasuk and Yuan, 2009)",
        "https://doi.org/10.1016/j.jpdc.2008.09.002",
    )
    immediate = True
    proportional = True
    halves = True

    def __init__(self) -> None:
        self._ring: SocketRing | None = None

    def unsupported(self, device: str) -> str | None:
        """Sockets take what lies in the host's memory."""
        return None if device == "cpu" else f"ring_socket moves tensors of the CPU, these are on {device}; use ring"

    def connected(self, comm: Comm) -> Collective:
        """Join the ranks in a ring."""
        mine = RingSocket()
        mine._ring = SocketRing(comm)
        return mine

    def close(self) -> None:
        """Leave the ring."""
        if self._ring is not None:
            self._ring.close()

    def start(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Hand the tensor to the ring and return at once."""
        return self._joined().sum_async(flat_N)

    def start_reduce_scatter(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Add up this rank's part in its place; the others stay as they were."""
        return self._joined().sum_part_async(flat_N)

    def start_all_gather(self, flat_N: Tensor, comm: Comm) -> InFlight:
        """Give every rank the parts of all."""
        return self._joined().share_parts_async(flat_N)

    def _joined(self) -> SocketRing:
        if self._ring is None:
            raise RuntimeError("ring_socket is used before `connected`")
        return self._ring

    def sent(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """What a ring sends, headers left out."""
        size = all_reduced(elements * element_bytes, world_size)
        return {"all_reduce": size} if size else {}

    def sent_in_halves(self, elements: int, element_bytes: int, rank: int, world_size: int) -> Mapping[str, Fraction]:
        """What a ring sends, in either half the same."""
        size = shared_out(elements * element_bytes, world_size)
        return {"reduce_scatter": size, "all_gather": size} if size else {}
