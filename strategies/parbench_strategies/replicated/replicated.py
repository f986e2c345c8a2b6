"""Replicated data parallelism, taken apart: how gradients are grouped, compressed and added up, each for choice.

rank 0   whole model, its share of the batch ─┐  groups of gradients,   ┌─ average ─> the same step on every rank
rank 1   whole model, its share of the batch ─┘  compressed, added up   └─ average ─>
"""

from __future__ import annotations

from typing import Literal, final

from parbench.api import Collective, Compressor, Paper, Point
from parbench.fusion import FusionRule
from parbench_strategies.collective import Native
from parbench_strategies.compression import Nothing
from parbench_strategies.fusion import Buckets
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class Replicated(EnginePoint):
    """Averages gradients in groups while backward goes on: any fusion rule, compressor and collective.

    Args:
        fusion: which gradients are exchanged together (`parbench list fusions`).
        compressor: what is sent of them (`parbench list compressors`).
        collective: how it is added up (`parbench list collectives`).
        overlap: whether groups go while backward is at work; else all of them after it.
        order: which group goes first: the first that is "ready" on all ranks alike, or of those that are ready on rank
            0 the one of highest "priority", as the fusion rule says.
    """

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    point = Point(fusion="for choice", compressor="for choice", collective="for choice", order="for choice")

    def __init__(
        self,
        fusion: FusionRule = Buckets(),  # noqa: B008 - it has no state
        compressor: Compressor = Nothing(),  # noqa: B008 - it is copied for each trainer
        collective: Collective = Native(),  # noqa: B008 - it has no state
        overlap: bool = True,
        order: Literal["ready", "priority"] = "ready",
    ) -> None:
        super().__init__(fusion, compressor, collective, overlap=overlap, order=order)
