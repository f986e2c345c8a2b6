"""p3 sends slices of gradients, those of the first layers first, and a layer waits for its own slices alone.

backward        layer 3   2    1 |
wire            3a 3b 3c 2a 2b 1a 1b 2c 3d 3e ...      1 overtakes what is left of 2 and 3
next forward                            | 1 | 2 | 3
"""

from __future__ import annotations

from typing import final

from parbench.api import Collective, Paper, Point
from parbench_strategies.collective import Native
from parbench_strategies.fusion import Slices
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class P3(EnginePoint):
    """Averages slices by priority of their layer's place in forward, and updates a layer before it is used again.

    The paper's servers send a slice back once they have all ranks' gradients of it; here slices are all-reduced one
    after the other, in an order that rank 0 chooses.

    Args:
        slice_elements: of a slice, at most; the paper's best was about 50,000.
        collective: what adds a slice up.
    """

    paper = Paper(
        "Priority-based Parameter Propagation for Distributed DNN Training (Jayarajan et al., 2019)",
        "https://arxiv.org/abs/1905.03960",
    )
    point = Point(fusion="slices", synchrony="every step; a layer waits for its own gradients", order="by priority")

    def __init__(
        self,
        slice_elements: int = 50_000,
        collective: Collective = Native(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(Slices(slice_elements), collective=collective, order="priority", use="by layer")
