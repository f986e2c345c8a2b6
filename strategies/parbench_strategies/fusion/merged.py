"""merged exchanges all gradients in one message when backward has ended.

    merged: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ..................+++000123333455

One start-up time, and nothing hidden behind backward. MG-WFBP compares itself with it under the name of SyncEASGD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, cut_plan


@final
class Merged(FusionRule):
    """Makes one group of all gradients."""

    name = "merged"
    paper = Paper(
        "Scaling Deep Learning on GPU and Knights Landing Clusters (You, Buluç and Demmel, 2017)",
        "https://arxiv.org/abs/1708.02983",
    )

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        return cut_plan(gradients, ())
