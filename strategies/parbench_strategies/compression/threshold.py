"""threshold sends all numbers that are large enough and their places; how many that is follows the gradient."""

from __future__ import annotations

from typing import Literal, final

from torch import Tensor

from parbench.api import Paper
from parbench_strategies.compression._selection import above
from parbench_strategies.compression._sparse import SparseCompressor


@final
class Threshold(SparseCompressor):
    """Sends the numbers whose magnitude reaches a bound, with error feedback: what is left out stays below it.

    Args:
        value: the bound, in units of the gradient of a rank's mean loss.
        per: what goes as one message: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "threshold"
    paper = Paper(
        "Rethinking gradient sparsification as total error minimization (Sahu et al., 2021)",
        "https://arxiv.org/abs/2108.00951",
    )
    feedback = True
    repeatable = True

    def __init__(self, value: float = 0.001, per: Literal["tensor", "group"] = "tensor") -> None:
        if not 0 < value < float("inf"):
            raise ValueError(f"value is the bound above which numbers are sent, above 0 and finite, got {value}")
        self.value = value
        self.per = per

    def places(self, flat_N: Tensor) -> Tensor:
        return above(flat_N, self.value)
