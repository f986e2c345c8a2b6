"""broadcast_chain adds up piece by piece along a chain of ranks, and broadcasts the sums back along it meanwhile.

3 ranks, pieces a b        round 0       1            2               3            4
rank 2   sends             a to 1   |    b to 1   |               |            |
rank 1   sends                      |    a+ to 0  |  b+ to 0      |  a++ to 2  |  b++ to 2
rank 0   sends                      |             |  a++ to 1     |  b++ to 1  |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from parbench.api import Message, Paper, PeerCollective, Round


@final
class BroadcastChain(PeerCollective):
    """Adds a tensor in pieces that follow each other from the last rank to the first, and back as sums.

    Additions go from rank n-1 down to rank 0. The ends of the chain send the tensor once, every other rank twice,
    however many ranks there are, and a longer chain costs one round per rank and way.

    Args:
        piece: elements of a piece; smaller ones fill the chain sooner, and larger ones pay less per message.
    """

    name = "broadcast_chain"
    paper = Paper(
        "Efficient Large Message Broadcast using NCCL and CUDA-Aware MPI for Deep Learning (Awan et al., 2016)",
        "https://doi.org/10.1145/2966884.2966912",
    )
    proportional = True

    def __init__(self, piece: int = 65_536) -> None:
        if piece < 1:
            raise ValueError(f"piece must be at least 1 element, got {piece}")
        self.piece = piece

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """In each round a rank sends one piece up and one down, as far as they are there."""
        if world_size == 1:
            return
        number, last = -(-elements // self.piece), world_size - 1

        def piece(k: int, peer: int) -> tuple[Message, ...]:
            if not (0 <= k < number and 0 <= peer < world_size):
                return ()
            return (Message(k * self.piece, min((k + 1) * self.piece, elements), peer),)

        for time in range(number + 2 * last - 1):
            up, down = time - (last - rank), time - last - rank
            yield Round(
                sends=(*piece(up, rank - 1), *piece(down, rank + 1)),
                adds=piece(up + 1, rank + 1),
                puts=piece(down + 1, rank - 1),
            )
