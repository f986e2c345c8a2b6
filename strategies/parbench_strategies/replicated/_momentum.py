"""Momentum moves from the optimizer to before compression, where a compressor corrects it (DGC, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from parbench.api import Job


def without_momentum(job: Job) -> Job:
    """Return the job with an optimizer whose momentum is off; one that has none stays as it is."""

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made = job.optimizer(parameters)
        for group in made.param_groups:
            if group.get("momentum"):
                group["momentum"], group["nesterov"] = 0.0, False
        return made

    return replace(job, optimizer=optimizer)


def momentum_of(job: Job) -> float:
    """Return the momentum of the job's optimizer: the largest of its groups', 0 where there is none."""
    made = job.optimizer([nn.Parameter(torch.zeros(1))])
    return max(float(group.get("momentum", 0.0)) for group in made.param_groups)
