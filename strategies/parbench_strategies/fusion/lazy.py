"""lazy waits until the gradients that are ready have a threshold of bytes, then exchanges them: GradientFlow's way.

    lazy(threshold_mb=5): gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      .........+++00012+++33334+++55

What is left at the end of backward goes as it is. GradientFlow keeps all gradients in one pool, in the order of
backward, so that a group is a range of memory and nothing is copied. Where gradients become ready in that order, the
groups are those of `buckets` without a smaller first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan
from parbench_strategies.fusion._arguments import bytes_of_megabytes
from parbench_strategies.fusion._filling import filled


@final
class Lazy(FusionRule):
    """Ends a group with the gradient with which it reaches the threshold.

    Args:
        threshold_mb: megabytes of memory, of 1024 x 1024 bytes, that are worth an exchange. The default is not the
            paper's, which goes by the network.
    """

    name = "lazy"
    paper = Paper(
        "Optimizing Network Performance for Distributed DNN Training on GPU Clusters: ImageNet/AlexNet Training in "
        "1.5 Minutes (Sun et al., 2019)",
        "https://arxiv.org/abs/1902.06855",
    )

    def __init__(self, threshold_mb: float = 4.0) -> None:
        self._threshold_bytes = bytes_of_megabytes("threshold_mb", threshold_mb)

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        return filled(gradients, element_bytes, self._threshold_bytes, self._threshold_bytes)
