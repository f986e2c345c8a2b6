"""A SocketRing adds tensors over a variant's ranks by parbench's own sockets, and tells the byte counters."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, final

from torch import Tensor

from parbench.collective import InFlight
from parbench.comm import Comm
from parbench.counting import Counted, tell
from parbench.network.ring import Ring
from parbench.network.ring_plan import payload_bytes
from parbench.network.ring_work import HEADER_BYTES
from parbench.traffic import all_reduced

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
        rank, n, size = self._ring.rank, self._ring.world_size, flat_N.element_size()
        wire = payload_bytes("all_reduce", rank, n, flat_N.numel(), size) + HEADER_BYTES
        tell(
            Counted(
                op="all_reduce",
                logical_bytes=all_reduced(flat_N.numel() * size, n),
                wire_bytes=Fraction(wire),
                group_size=n,
                group=self._ring.label,
                dtype=flat_N.dtype,
            )
        )
        return self._ring.all_reduce_async(flat_N)

    def close(self) -> None:
        """End its thread and connections; what is on its way fails. Again does nothing."""
        self._ring.close()
