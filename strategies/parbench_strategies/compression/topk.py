"""topk sends the largest numbers of each gradient and their places; the rest waits for the next step."""

from __future__ import annotations

import math
from typing import Literal, final

from torch import Tensor

from parbench.api import Claims, Paper, Shape
from parbench_strategies.compression._indices import index_bytes
from parbench_strategies.compression._ratio import checked_ratio, kept
from parbench_strategies.compression._selection import about_largest, largest
from parbench_strategies.compression._sparse import SparseCompressor


@final
class TopK(SparseCompressor):
    """Sends the k numbers of largest magnitude of each gradient, with error feedback.

    Args:
        ratio: share of the elements that is sent, rounded up.
        exact: whether these are the largest; else they are above a bound that a sample gives, of which there are a few
            more, and the first k are sent.
        per: what a share is of: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "topk"
    paper = Paper(
        "Sparse Communication for Distributed Gradient Descent (Aji and Heafield, 2017)",
        "https://arxiv.org/abs/1704.05021",
    )
    feedback = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, ratio: float = 0.01, exact: bool = True, per: Literal["tensor", "group"] = "tensor") -> None:
        self.ratio = checked_ratio(ratio)
        self.exact = exact
        self.per = per

    def places(self, flat_N: Tensor) -> Tensor:
        select = largest if self.exact else about_largest
        return select(flat_N, kept(flat_N.numel(), self.ratio))

    def length(self, shape: Shape, element_bytes: int) -> int:
        """A value and an index for each."""
        elements = math.prod(shape)
        return kept(elements, self.ratio) * (element_bytes + index_bytes(elements))
