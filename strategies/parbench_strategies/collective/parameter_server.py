"""parameter_server adds up chunk by chunk on servers, which hand the sums to all workers; ranks are both.

2 servers (ranks 0 and 1), 3 ranks, chunks a b c d placed in turn
round 0   a of 1 and 2 to 0, b of 0 and 2 to 1
round 1   c of 1 and 2 to 0, d of 0 and 2 to 1    a++ to 1 and 2, b++ to 0 and 2
round 2                                           c++ to 1 and 2, d++ to 0 and 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, final

from parbench.api import Message, Paper, PeerCollective, Round

Placement = Literal["round_robin", "contiguous"]


@final
class ParameterServer(PeerCollective):
    """Adds a tensor on a few ranks: all send them chunks, and they send all the sums while the next chunks come in.

    A server's chunk is added in the order: the server's own, then ranks 0, 1, ..., n-1. A rank sends every chunk that
    is not its own, and each of its own to n-1 others: with one server, that sends n-1 tensors and everyone else one.

    Args:
        servers: ranks 0 to servers-1, which are workers too.
        placement: chunks go to the servers in turn, or each server gets consecutive ones.
        chunk: elements of a chunk; smaller ones overlap more, and larger ones pay less per message.
    """

    name = "parameter_server"
    paper = Paper(
        "Scaling Distributed Machine Learning with the Parameter Server (Li et al., 2014)",
        "https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu",
    )

    def __init__(self, servers: int = 1, placement: Placement = "round_robin", chunk: int = 1_000_000) -> None:
        if servers < 1:
            raise ValueError(f"servers must be at least 1, got {servers}")
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1 element, got {chunk}")
        self.servers = servers
        self.placement = placement
        self.chunk = chunk

    def refuses(self, world_size: int) -> str | None:
        """A server is a rank."""
        if world_size >= self.servers:
            return None
        return (
            f"parameter_server(servers={self.servers}) needs {self.servers} ranks, given {world_size}; the most "
            f"servers are {world_size}"
        )

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Each round takes in one chunk of every server, and hands out the sums of the round before."""
        others = [other for other in range(world_size) if other != rank]
        added: Sequence[tuple[int, int, int]] = ()
        for coming in (*self._rounds_of_chunks(elements), ()):
            parts = [Message(*one) for one in coming if one[2] != rank]
            sums = [Message(start, stop, other) for start, stop, server in added if server == rank for other in others]
            yield Round(
                sends=[*parts, *sums],
                adds=[
                    Message(start, stop, other) for start, stop, server in coming if server == rank for other in others
                ],
                puts=[Message(*one) for one in added if one[2] != rank],
            )
            added = coming

    def _rounds_of_chunks(self, elements: int) -> list[list[tuple[int, int, int]]]:
        """Return (start, stop, server) of the chunks of each round: one of every server that has one left."""
        number = -(-elements // self.chunk)
        chunks = [(k * self.chunk, min((k + 1) * self.chunk, elements)) for k in range(number)]
        in_turn = self.placement == "round_robin"
        servers = [k % self.servers if in_turn else k * self.servers // number for k in range(number)]
        queues: list[list[tuple[int, int, int]]] = [[] for _ in range(self.servers)]
        for (start, stop), server in zip(chunks, servers, strict=True):
            queues[server].append((start, stop, server))
        longest = max(map(len, queues))
        return [[queue[k] for queue in queues if k < len(queue)] for k in range(longest)]
