"""mergecomp compresses gradients in few groups, whose cuts it finds by timing real steps."""

from __future__ import annotations

from typing import final

from parbench.api import Compressor, Paper, Point
from parbench_strategies.compression import Fp16
from parbench_strategies.fusion import Searched
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class MergeComp(EnginePoint):
    """Averages compressed groups; the search for their cuts takes training steps.

    Args:
        compressor: of each group.
        groups: at most so many; the paper found two to be enough.
    """

    paper = Paper(
        "MergeComp: A Compression Scheduler for Scalable Communication-Efficient Distributed Training "
        "(Wang, Wu and Ng, 2021)",
        "https://arxiv.org/abs/2103.15195",
    )
    point = Point(fusion="few groups, cuts searched in real steps", compressor="for choice")

    def __init__(self, compressor: Compressor = Fp16(), groups: int = 2) -> None:  # noqa: B008 - it is copied
        super().__init__(Searched(groups=groups), compressor)
