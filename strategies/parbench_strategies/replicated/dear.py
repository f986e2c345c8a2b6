"""dear reduce-scatters gradients while backward goes on, and all-gathers them while the next forward does.

backward   layer 3   2   1 |  next forward   1   2   3
wire         RS 3   RS 2   RS 1   AG 1   AG 2   AG 3         a layer is updated before its forward
"""

from __future__ import annotations

from typing import final

from parbench.api import Collective, Paper, Point
from parbench_strategies.collective import ReduceScatterAllGather
from parbench_strategies.fusion import Bayesian, Buckets
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class DeAR(EnginePoint):
    """Averages buckets in two halves, the second of which hides behind the next step's forward.

    Args:
        mb: size of a bucket in MiB.
        search: whether to search that size in the first steps, by `fusion=bayesian`, which begins with 25.
        collective: one that has halves (gloo's own reduce-scatter moves as many bytes as an all-reduce and is none).
    """

    paper = Paper(
        "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce Pipelining (Zhang et al., 2023)",
        "https://arxiv.org/abs/2302.12445",
    )
    point = Point(
        fusion="buckets, of searched size on demand",
        collective="reduce-scatter, later all-gather",
        synchrony="every step; a layer waits for its own gradients",
    )

    def __init__(
        self,
        mb: float = 25.0,
        search: bool = False,
        collective: Collective = ReduceScatterAllGather(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(Bayesian() if search else Buckets(mb), collective=collective, halves=True, use="by layer")
