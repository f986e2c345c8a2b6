"""A NetworkPlan is every namespace, link, address and shaper of a network, and the commands that make them; pure.

The plan is carried out in a world of its own (private network and mount namespaces of one process, see keeper.py), so
names and addresses meet nobody else's, and the kernel removes all of it when that process ends.

 pb-RUN-PID-n0     pb-RUN-PID-n1        pb-RUN-PID-n2     pb-RUN-PID-n3       one namespace per node
   pbrank│10.77.0.1  pbrank│10.77.0.2     pbrank│           pbrank│           up: shaped here
     port0│            port1│               port2│            port3│          down: shaped here
      ────┴───rack0─────┴──── trunk0 ~ trunk1 ──┴───rack1──────┴────          two racks; a star has rack0 only
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from parbench.errors import UsageError
from parbench.network.links import QUEUE_S, Shape, shape
from parbench.network.quantities import rate_text
from parbench.network.spelling import Network

OWN_INTERFACE = "pbrank"  # its counters are one rank's
SHARED_INTERFACE = "pbnode"  # several ranks share it
MAX_NODES = 64
# A core moves about 4 Gbit/s of shaped traffic over all links together (measured: 2 cores, n x rate = 8 Gbit/s).
BITS_PER_S_PER_CORE = 4e9
_NETEM_PACKETS = 10_000
_SUBNET = "10.77.0"
_TAG = re.compile(r"pb-[0-9a-z]{4,16}-[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with its arguments, and what it reads from its standard input; no shell is between."""

    argv: tuple[str, ...]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One namespace with one link.

    Attributes:
        name: of the namespace.
        ranks: behind its link.
        interface: its end of the link.
        address: its IPv4 address.
        rack: which bridge the other end is plugged into.
    """

    name: str
    ranks: tuple[int, ...]
    interface: str
    address: str
    rack: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """What is to be made.

    Attributes:
        network: what was asked for.
        nodes: in the order of their ranks.
        up: shape from a node to its switch.
        down: shape from the switch to a node.
        trunk: shape of each direction between two racks; None in a star.
        stages: commands; those of one stage may run at the same time.
    """

    network: Network
    nodes: tuple[Node, ...]
    up: Shape
    down: Shape
    trunk: Shape | None
    stages: tuple[tuple[Command, ...], ...]

    def node_of(self, rank: int) -> Node:
        """Return the node of a rank."""
        return self.nodes[rank // self.network.ranks_per_node]


def tag_of(run: str, pid: int) -> str:
    """Return the name that namespaces of a run begin with: it says whose they are.

    Raises:
        ValueError: it would be no such name.
    """
    tag = f"pb-{run}-{pid}"
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} names no run and process")
    return tag


def plan(network: Network, world_size: int, tag: str) -> NetworkPlan:
    """Plan `network` for `world_size` ranks.

    Args:
        network: what is asked for.
        world_size: ranks.
        tag: what names of namespaces begin with, from `tag_of`.

    Raises:
        UsageError: too many nodes, too few for two racks, or no burst keeps the start-up cost asked for.
    """
    nodes = _nodes(network, world_size, tag)
    if len(nodes) > MAX_NODES:
        raise UsageError(f"{len(nodes)} nodes are too many for one machine; at most {MAX_NODES}: use ranks_per_node")
    up, down = shape(network, network.up_bits_per_s), shape(network, network.down_bits_per_s)
    trunk = _trunk(network, nodes)
    return NetworkPlan(
        network=network, nodes=nodes, up=up, down=down, trunk=trunk, stages=_stages(network, nodes, up, down, trunk)
    )


def check_capacity(network: Network, world_size: int, cores: int) -> None:
    """Refuse links that the processors of this machine cannot fill together.

    Raises:
        UsageError: they cannot; it says what would do.
    """
    links = math.ceil(world_size / network.ranks_per_node)
    rate = max(network.up_bits_per_s, network.down_bits_per_s)
    most = BITS_PER_S_PER_CORE * cores
    if links * rate > most:
        raise UsageError(
            f"{links} links of {rate_text(rate)} carry {links * rate / 1e9:g} Gbit/s together; {cores} cores move "
            f"about {most / 1e9:g}, so the processor would be the limit; use at most {rate_text(most / links)}, "
            "or fewer ranks"
        )


def _nodes(network: Network, world_size: int, tag: str) -> tuple[Node, ...]:
    per_node = network.ranks_per_node
    count = math.ceil(world_size / per_node)
    return tuple(
        Node(
            name=f"{tag}-n{k}",
            ranks=tuple(range(k * per_node, min(world_size, (k + 1) * per_node))),
            interface=OWN_INTERFACE if per_node == 1 else SHARED_INTERFACE,
            address=f"{_SUBNET}.{k + 1}",
            rack=int(network.topology == "two-racks" and k >= math.ceil(count / 2)),
        )
        for k in range(count)
    )


def _trunk(network: Network, nodes: Sequence[Node]) -> Shape | None:
    if network.topology == "star":
        return None
    largest_rack = math.ceil(len(nodes) / 2)
    rate = largest_rack * max(network.up_bits_per_s, network.down_bits_per_s) / network.oversubscription
    return shape(network, rate)


def _stages(
    network: Network, nodes: Sequence[Node], up: Shape, down: Shape, trunk: Shape | None
) -> tuple[tuple[Command, ...], ...]:
    # A packet passes every link on its way whole: what a sender makes must fit the smallest.
    gso_bytes = min(one.gso_bytes for one in (up, down, trunk or up))
    racks = 1 if trunk is None else 2
    ports = [_tbf(f"port{k}", down) for k in range(len(nodes))]
    trunks = [] if trunk is None else [_tbf(f"trunk{k}", trunk) for k in range(racks)]
    return (
        (Command(argv=("ip", "-batch", "-"), lines=_switch(nodes, racks)),),
        tuple(_link(node, gso_bytes) for node in nodes),
        (
            Command(argv=("tc", "-batch", "-"), lines=(*ports, *trunks)),
            *(
                Command(
                    argv=("tc", "-n", node.name, "-batch", "-"),
                    lines=(_tbf(node.interface, up), *_netem(node.interface, network)),
                )
                for node in nodes
            ),
        ),
    )


def _switch(nodes: Sequence[Node], racks: int) -> tuple[str, ...]:
    """Return what makes bridges, namespaces and the links between them, in the keeper's own namespace."""
    lines = ["link set dev lo up"]
    for k in range(racks):
        lines += [f"link add name rack{k} type bridge", f"link set dev rack{k} up"]
    if racks == 2:
        lines.append("link add name trunk0 type veth peer name trunk1")
        lines += [f"link set dev trunk{k} master rack{k} up" for k in range(racks)]
    for k, node in enumerate(nodes):
        lines += [
            f"netns add {node.name}",
            f"link add name port{k} type veth peer name {node.interface} netns {node.name}",
            f"link set dev port{k} master rack{node.rack} up",
        ]
    return tuple(lines)


def _link(node: Node, gso_bytes: int) -> Command:
    return Command(
        argv=("ip", "-n", node.name, "-batch", "-"),
        lines=(
            "link set dev lo up",
            f"link set dev {node.interface} gso_max_size {gso_bytes}",
            f"address add {node.address}/24 dev {node.interface}",
            f"link set dev {node.interface} up",
        ),
    )


def _tbf(interface: str, one: Shape) -> str:
    """Return tc's arguments; the limit is what waits at most, as bytes, so that it never falls below the burst."""
    limit = round(one.rate_bits_per_s / 8 * QUEUE_S) + one.burst_bytes
    rate = f"{round(one.rate_bits_per_s)}bit"
    return f"qdisc replace dev {interface} root handle 1: tbf rate {rate} burst {one.burst_bytes} limit {limit}"


def _netem(interface: str, network: Network) -> tuple[str, ...]:
    """Return what delays and loses packets before they are shaped, if that is asked for."""
    if not network.delay_s and not network.loss:
        return ()
    what = f"delay {round(network.delay_s * 1e6)}us loss {network.loss * 100:.6g}% limit {_NETEM_PACKETS}"
    return (f"qdisc add dev {interface} parent 1:1 handle 2: netem {what}",)
