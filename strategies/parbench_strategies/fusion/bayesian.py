"""bayesian searches the size of buckets in real steps: each trial is where a model of the times expects most.

    bayesian: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ..................+++000123333455

It begins with buckets of 25 MB, as above. DeAR's search (section 5) models the step time over the size by a Gaussian
process and tries the size of which it expects most improvement. All these steps are training: they count as any other.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import final

from parbench.fusion import FusionRule, Gradient, Link, Paper, Plan, Search, Trials
from parbench_strategies.fusion._arguments import bytes_of_megabytes, checked_count
from parbench_strategies.fusion._filling import filled

_MEGABYTE = 2**20
_DEFAULT_MB = 25.0
_EXPLORES = 0.1  # the paper's xi
_MOST_TRIALS, _MOST_STEPS = 100, 1000


@final
class Bayesian(FusionRule):
    """Fills groups of equal size, and searches the size with which steps take the least time.

    Args:
        low_mb: smallest size, in megabytes of 1024 x 1024 bytes; no more than a tenth of the model.
        high_mb: largest size; no more than the model.
        trials: sizes tried; the paper's are 10.
        probes: steps of each that count; the paper's are 5.
        warmup: steps before them that do not.
    """

    name = "bayesian"
    paper = Paper(
        "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce Pipelining (Zhang et al., 2023)",
        "https://arxiv.org/abs/2302.12445",
    )
    probes = True

    def __init__(
        self, low_mb: float = 1.0, high_mb: float = 256.0, trials: int = 10, probes: int = 5, warmup: int = 1
    ) -> None:
        if bytes_of_megabytes("low_mb", low_mb) > bytes_of_megabytes("high_mb", high_mb):
            raise ValueError(f"low_mb is at most high_mb, given {low_mb} and {high_mb}")
        self._low_mb, self._high_mb = low_mb, high_mb
        self._trials = checked_count("trials", trials, 1, _MOST_TRIALS)
        self._counted = checked_count("probes", probes, 1, _MOST_STEPS)
        self._warmup = checked_count("warmup", warmup, 0, _MOST_STEPS)

    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        return _of_size(gradients, element_bytes, _DEFAULT_MB)

    def search(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Search:
        whole_mb = sum(one.elements for one in gradients) * element_bytes / _MEGABYTE
        high_mb = min(self._high_mb, whole_mb)
        low_mb = min(self._low_mb, high_mb / 10)
        trials = Trials(low_mb, high_mb, _EXPLORES)
        for trial in range(self._trials):
            mb = min(_DEFAULT_MB, high_mb) if trial == 0 else trials.next()
            plan = _of_size(gradients, element_bytes, mb)
            taken = []
            for _ in range(self._warmup + self._counted):
                taken.append((yield plan))
            trials.tell(mb, statistics.median(taken[self._warmup :]))
        return _of_size(gradients, element_bytes, trials.best)


def _of_size(gradients: Sequence[Gradient], element_bytes: int, mb: float) -> Plan:
    size = max(1, int(mb * _MEGABYTE))
    return filled(gradients, element_bytes, size, size)
