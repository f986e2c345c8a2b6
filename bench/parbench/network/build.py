"""Links are a network that exists: namespaces, links and shapers, from `make` until `close` or the launcher's end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import final

from parbench.network.keeper import Keeper
from parbench.network.links import Shape
from parbench.network.plan import NetworkPlan, plan, tag_of
from parbench.network.quantities import rate_text, time_text
from parbench.network.reaper import reap
from parbench.network.seat import NetworkSeat
from parbench.network.spelling import Network
from parbench.record import Chosen


@final
class Links:
    """A network that exists.

    with Links.make(network, world_size=4) as links:
        links.seats[0].address
    """

    def __init__(self, keeper: Keeper, made: NetworkPlan) -> None:
        self._keeper = keeper
        self.plan = made

    @staticmethod
    def make(network: Network, world_size: int, run: str = "") -> Links:
        """Make `network` for `world_size` ranks, after removing what dead launchers left.

        Args:
            network: what is asked for.
            world_size: ranks.
            run: a name of 4 to 16 lower-case letters and digits; random unless given.

        Raises:
            UsageError: the network cannot be planned.
            MissingError: this user may not make it here, or the kernel lacks something.
        """
        tag = tag_of(run or secrets.token_hex(4), os.getpid())
        made = plan(network, world_size, tag)
        reap()
        keeper = Keeper.start(tag)
        try:
            for stage in made.stages:
                keeper.run(stage)
        except BaseException:
            keeper.close()
            raise
        return Links(keeper, made)

    @property
    def seats(self) -> tuple[NetworkSeat, ...]:
        """Where each rank's link is, in rank order."""
        return tuple(
            NetworkSeat(
                user_namespace=self._keeper.user_namespace,
                namespace=self._keeper.namespace(node.name),
                interface=node.interface,
                address=node.address,
                alpha_s=self.plan.network.alpha_s,
            )
            for node in self.plan.nodes
            for _ in node.ranks
        )

    @property
    def chosen(self) -> dict[str, Chosen]:
        """What was chosen, with reasons, for the record."""
        found = {"network": Chosen(value=self.plan.network.text, because=_asked(self.plan.network))}
        shapes: Mapping[str, Shape | None] = {"up": self.plan.up, "down": self.plan.down, "trunk": self.plan.trunk}
        for name, one in shapes.items():
            if one is None:
                continue
            value = f"tbf rate={rate_text(one.rate_bits_per_s)} burst={one.burst_bytes} gso={one.gso_bytes}"
            found[f"network_{name}"] = Chosen(value=value, because=one.because)
        if self.plan.network.alpha_s:
            found["network_alpha"] = _alpha(self.plan.network.alpha_s)
        way = "root" if self._keeper.way == "root" else "a user namespace"
        found["network_namespaces"] = Chosen(value=str(len(self.plan.nodes)), because=f"one per node, made by {way}")
        return found

    @property
    def keeper_pid(self) -> int:
        """The process whose end removes everything."""
        return self._keeper.pid

    def inside(self, node: int) -> tuple[str, ...]:
        """Return what stands before a program's arguments to run it on a node."""
        return self._keeper.inside(self.plan.nodes[node].name)

    def close(self) -> None:
        """Remove everything; again does nothing."""
        self._keeper.close()

    def __enter__(self) -> Links:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _asked(network: Network) -> str:
    scaled = f"; real rates divided by {network.scale:g}, bytes are not" if network.scale != 1 else ""
    return f"asked for{scaled}"


def _alpha(alpha_s: float) -> Chosen:
    return Chosen(
        value=f"{time_text(alpha_s)} in parbench's own transport",
        because="asked for, and slept once per collective in its thread; torch's own start at this machine's cost",
    )
