"""per_tensor exchanges every gradient by itself as soon as it is ready: wait-free back-propagation (WFBP).

    per_tensor: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ...+++000+++1+++2+++3333+++4+++55

The most overlap, and the most start-up times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, cut_plan


@final
class PerTensor(FusionRule):
    """Makes a group of every gradient."""

    name = "per_tensor"
    paper = Paper(
        "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on GPU Clusters "
        "(Zhang et al., 2017)",
        "https://arxiv.org/abs/1706.03292",
    )

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        return cut_plan(gradients, range(1, len(gradients)))
