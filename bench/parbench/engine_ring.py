"""A SocketRing adds tensors over a variant's ranks by parbench's own sockets, and tells the byte counters."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, final

from torch import Tensor

from parbench.collective import InFlight
from parbench.comm import Comm
from parbench.counting import Counted, tell
from parbench.network.ring import Ring
from parbench.network.ring_plan import Op, payload_bytes
from parbench.network.ring_work import HEADER_BYTES
from parbench.traffic import all_reduced, shared_out

if TYPE_CHECKING:
    from parbench.launch.stores import Store


@final
class SocketRing:
    """The ring of the ranks of `comm`; every rank makes one, and closes it.

    Args:
        comm: at least two ranks.

    Raises:
        ValueError: there is no other rank.
    """

    def __init__(self, comm: Comm) -> None:
        if comm.group is None or comm.groups is None:
            raise ValueError("one rank makes no ring; use at least 2 ranks")
        store: Store = comm.group.get_group_store()
        self._ring = Ring.connect(
            store,
            comm.rank,
            comm.world_size,
            host=comm.groups.address,
            timeout_s=comm.groups.timeout_s,
            alpha_s=comm.groups.alpha_s,
            name="socket ring of a collective",
        )

    def sum_async(self, flat_N: Tensor) -> InFlight:
        """Start adding `flat_N` over all ranks in place, after what was started before."""
        self._tell("all_reduce", flat_N, all_reduced(_bytes(flat_N), self._ring.world_size))
        return self._ring.all_reduce_async(flat_N)

    def sum_part_async(self, flat_N: Tensor) -> InFlight:
        """Start adding this rank's part of `flat_N` over all ranks, in its place."""
        self._tell("reduce_scatter", flat_N, shared_out(_bytes(flat_N), self._ring.world_size))
        return self._ring.reduce_scatter_async(flat_N[self._ring.part(flat_N.numel())], flat_N)

    def share_parts_async(self, flat_N: Tensor) -> InFlight:
        """Start giving every rank all parts of `flat_N`, each as the rank has it whose part it is."""
        self._tell("all_gather", flat_N, shared_out(_bytes(flat_N), self._ring.world_size))
        return self._ring.all_gather_async(flat_N, flat_N[self._ring.part(flat_N.numel())])

    def _tell(self, op: Op, flat_N: Tensor, logical_bytes: Fraction) -> None:
        rank, n, size = self._ring.rank, self._ring.world_size, flat_N.element_size()
        wire = payload_bytes(op, rank, n, flat_N.numel(), size) + HEADER_BYTES
        tell(
            Counted(
                op=op,
                logical_bytes=logical_bytes,
                wire_bytes=Fraction(wire),
                group_size=n,
                group=self._ring.label,
                dtype=flat_N.dtype,
            )
        )

    def close(self) -> None:
        """End its thread and connections; what is on its way fails. Again does nothing."""
        self._ring.close()


def _bytes(flat_N: Tensor) -> int:
    return flat_N.numel() * flat_N.element_size()
