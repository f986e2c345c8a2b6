"""AdamW as the GPT workloads use it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW with an epsilon above rounding noise.

    A key's bias shifts all scores of a query alike, so its true gradient is 0 and what is computed is rounding, 1e-12
    to 1e-9. Divided by its own size, as Adam does, such noise would become steps as long as the learning rate that
    depend on the order of sums, and runs that agree would look different.
    """
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.01)
