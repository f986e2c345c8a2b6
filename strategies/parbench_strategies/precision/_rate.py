"""The learning rate of many replicas: it grows with their number and saturates.

n replicas        1       10       100      400      infinitely many
rate / rate_0     0.990   9.09     50       80       100
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import torch
from torch import nn

from parbench.api import Job

_HALF: Final = 100  # replicas at which half of the limit is reached
MOST: Final = 0.1  # of the base rate, and of the rate itself


def growth(replicas: int) -> float:
    """Return n / (1 + n/100), by which the rate of one replica is multiplied (Svyatkovskiy et al. 2017).

    Each replica's base rate is divided by 1 + n/100, and a step of all n averaged replicas is n times as long.
    """
    return replicas / (1 + replicas / _HALF)


def grown(rate: float, replicas: int) -> float:
    """Return the learning rate for so many replicas: base rate and result are 0.1 at most, as in the paper's code."""
    return min(MOST, min(rate, MOST) * growth(replicas))


def with_grown_rate(job: Job, replicas: int) -> Job:
    """Return `job` with an optimizer whose learning rates are those of so many replicas."""

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made = job.optimizer(parameters)
        for group in made.param_groups:
            group["lr"] = grown(float(group["lr"]), replicas)
        return made

    return replace(job, optimizer=optimizer)
