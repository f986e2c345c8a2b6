"""threshold sends all numbers that are large enough and their places; how many that is follows the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

from torch import Tensor

from parbench.api import GatherCompressor, Paper
from parbench_strategies.compression._selection import above
from parbench_strategies.compression._sparse import dense, mean_of_sparse, taken


@final
class Threshold(GatherCompressor):
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

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1)
        return taken(flat_N, above(flat_N.abs(), self.value))

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        return dense(message, grad_B)

    def average(self, messages: Sequence[Sequence[Tensor]], grad_B: Tensor, key: str) -> Tensor:
        return mean_of_sparse(messages, grad_B)
