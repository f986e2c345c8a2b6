"""Who takes part in the exchange: parameters whose gradient every step makes, and those that a step may leave out."""

from __future__ import annotations

from torch import nn

from parbench.api import Job


def members(job: Job) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Return the trained parameters that every step uses, and those that it may not use, by name.

    Both in the reverse of the order in which the model lists them, which is about that of backward.
    """
    unused = set(job.unused)
    trained = [(name, p) for name, p in job.model.named_parameters() if p.requires_grad][::-1]
    used = {name: p for name, p in trained if name not in unused and p.numel()}
    return used, {name: p for name, p in trained if name in unused}
