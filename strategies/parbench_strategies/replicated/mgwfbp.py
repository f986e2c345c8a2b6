"""mgwfbp merges gradients whenever waiting for the next costs less than the start-up of one more message."""

from __future__ import annotations

from typing import final

from parbench.api import Paper, Point
from parbench_strategies.fusion import MgWfbp as Rule
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class MgWfbp(EnginePoint):
    """Averages the groups that the paper's rule finds for this model and the link as it was measured."""

    paper = Paper(
        "MG-WFBP: Merging Gradients Wisely for Efficient Communication in Distributed Deep Learning (Shi et al., 2021)",
        "https://arxiv.org/abs/1912.09268",
    )
    point = Point(fusion="MG-WFBP's rule, by the measured link")

    def __init__(self) -> None:
        super().__init__(Rule())
