"""slices cuts gradients into pieces and sends those of the first layers first, which the next step needs first: P3.

    slices(elements=524288): gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ...+++00+++1+++33+++4+++55+++33+++2+++0

A slice is exchanged by itself. Whenever one has ended, the next is that of the earliest layer which is ready: a large
gradient of a late layer is overtaken between its slices. Layers are taken to be used in the reverse of the order in
which their gradients become ready. The last exchange ends no earlier, but the next forward can begin earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from parbench.errors import UsageError
from parbench.fusion import FusionRule, Gradient, Group, Link, Paper, Piece, Plan
from parbench_strategies.fusion._arguments import checked_count

_MOST_ELEMENTS = 2**40
_MOST_SLICES = 100_000


@final
class Slices(FusionRule):
    """Cuts every gradient into slices, of which those of the layer that is used first go first.

    Args:
        elements: of a slice, at most; the paper's best was about 50,000.
    """

    name = "slices"
    paper = Paper(
        "Priority-based Parameter Propagation for Distributed DNN Training (Jayarajan et al., 2019)",
        "https://arxiv.org/abs/1905.03960",
    )

    def __init__(self, elements: int = 50_000) -> None:
        self._elements = checked_count("elements", elements, 1, _MOST_ELEMENTS)

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        number = sum(-(-one.elements // self._elements) for one in gradients)
        if number > _MOST_SLICES:
            enough = -(-sum(one.elements for one in gradients) // max(1, _MOST_SLICES - len(gradients) + 1))
            raise UsageError(
                f"slices(elements={self._elements}) cuts this model into {number} slices, {_MOST_SLICES} are the most; "
                f"slices(elements={enough}) are few enough"
            )
        return Plan(
            tuple(
                Group((Piece(index, start, min(start + self._elements, one.elements)),), len(gradients) - 1 - index)
                for index, one in enumerate(gradients)
                for start in range(0, one.elements, self._elements)
            )
        )
