"""The Rest: trainable parameters that a step may leave without gradient; they stay whole and replicated."""

from __future__ import annotations

from typing import final

from torch import nn

from parbench.api import Job, RankContext


@final
class Rest:
    """Parameters outside every shard.

    An optimizer skips a parameter without gradient, whereas a shard has one gradient for all its elements: zero is not
    the same as none where weights decay.

    Attributes:
        parameters: what the optimizer steps beside the shards.
    """

    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._ctx = ctx
        unused = set(job.unused)
        self.parameters: list[nn.Parameter] = [p for name, p in job.model.named_parameters() if name in unused]

    def average(self) -> None:
        """Average the gradients that there are, over all ranks."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                self._ctx.comm.mean(parameter.grad)
