"""tree adds up along a binomial tree to rank 0 and hands the sum back along it, as FireCaffe does.

8 ranks     7 -> 6 ┐
            5 -> 4 ┤ 6 -> 4 ┐
            3 -> 2 ┐        │
            1 -> 0 ┤ 2 -> 0 ┤ 4 -> 0      and back: 0 -> 4, then 0 -> 2 and 4 -> 6, then ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from parbench.api import Message, Paper, PeerCollective, Round


@final
class Tree(PeerCollective):
    """Adds a tensor in 2 log2 n rounds of whole tensors: pairs of ranks, pairs of pairs, and back.

    Each rank adds its children's sums in the order of their distance: 1, 2, 4, ... A rank other than 0 sends the tensor
    once up, and every rank once down to each of its children.
    """

    name = "tree"
    paper = Paper(
        "FireCaffe: near-linear acceleration of deep neural network training on compute clusters "
        "(Iandola et al., 2016)",
        "https://arxiv.org/abs/1511.00175",
    )
    proportional = True

    def rounds(self, elements: int, rank: int, world_size: int) -> Iterator[Round]:
        """Take the children's sums, give the parent the sum, and the same back."""
        children, apart = [], 1
        while apart < world_size and not rank & apart:
            if rank + apart < world_size:
                children.append(Message(0, elements, rank + apart))
            apart *= 2
        for child in children:
            yield Round(adds=(child,))
        if rank:
            parent = (Message(0, elements, rank - apart),)
            yield Round(sends=parent)
            yield Round(puts=parent)
        for child in reversed(children):
            yield Round(sends=(child,))
