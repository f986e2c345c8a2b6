"""buckets fills groups of about equal size, as torch's DistributedDataParallel does, the first one smaller.

    buckets(mb=4): gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ...+++000...+++123333+++455

A bucket ends with the gradient with which it reaches its size, so that it may be larger. The small first one lets the
link begin early. torch has it only where `bucket_cap_mb` is not given: its default is `buckets`, and its
`bucket_cap_mb=25` is `buckets(mb=25, first_mb=25)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan
from parbench_strategies.fusion._arguments import bytes_of_megabytes
from parbench_strategies.fusion._filling import filled


@final
class Buckets(FusionRule):
    """Ends a group with the gradient with which it has at least so many megabytes of memory.

    Args:
        mb: size of a bucket, in megabytes of 1024 x 1024 bytes.
        first_mb: size of the first one, where that is less than `mb`.
    """

    name = "buckets"
    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )

    def __init__(self, mb: float = 25.0, first_mb: float = 1.0) -> None:
        self._further_bytes = bytes_of_megabytes("mb", mb)
        self._first_bytes = min(bytes_of_megabytes("first_mb", first_mb), self._further_bytes)

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        return filled(gradients, element_bytes, self._first_bytes, self._further_bytes)
