"""pipe_sgd updates with the gradients of some steps ago, which were on their way while later ones were computed.

k = 2      compute   t    | t+1  | t+2
           wire           | t    | t+1
           update    t-1  | t    | t+1          a step takes the longer of computing and exchanging, not their sum
"""

from __future__ import annotations

from typing import final

from parbench.api import Collective, Compressor, Paper, Point
from parbench_strategies.collective import Native
from parbench_strategies.compression import Nothing
from parbench_strategies.fusion import Merged
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class PipeSgd(EnginePoint):
    """Replicas that stay alike and use gradients that are k - 1 steps old.

    Args:
        k: width of the pipeline; 1 waits for every step's own gradients, 2 is the paper's choice.
        warmup: steps at first that wait for their own.
        codec: what is sent; the paper's are `truncate` and `quantize8`.
        collective: what adds gradients up; the paper's is a ring.
    """

    paper = Paper(
        "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training (Li et al., 2018)",
        "https://arxiv.org/abs/1811.03619",
    )
    point = Point(compressor="for choice", synchrony="every step, k - 1 steps late", order="after backward")

    def __init__(
        self,
        k: int = 2,
        warmup: int = 0,
        codec: Compressor = Nothing(),  # noqa: B008 - it is copied for each trainer
        collective: Collective = Native(),  # noqa: B008 - it has no state
    ) -> None:
        if not 1 <= k <= 64:
            raise ValueError(f"k is the width of the pipeline in steps, from 1 to 64, got {k}")
        if warmup < 0:
            raise ValueError(f"warmup is a number of steps, 0 or more, got {warmup}")
        super().__init__(
            Merged(),
            codec,
            collective,
            overlap=False,
            use="delayed" if k > 1 else "at once",
            delay=k - 1,
            warmup=warmup,
        )
