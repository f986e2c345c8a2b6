"""firecaffe adds up all gradients in one message after backward, along a binary tree of ranks and back."""

from __future__ import annotations

from typing import final

from parbench.api import Paper, Point
from parbench_strategies.collective import Tree
from parbench_strategies.fusion import Merged
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class FireCaffe(EnginePoint):
    """Averages all gradients at once, by a reduction tree instead of a parameter server."""

    paper = Paper(
        "FireCaffe: near-linear acceleration of deep neural network training on compute clusters (Iandola, 2016)",
        "https://arxiv.org/abs/1511.00175",
    )
    point = Point(collective="tree", order="after backward")

    def __init__(self) -> None:
        super().__init__(Merged(), collective=Tree(), overlap=False)
