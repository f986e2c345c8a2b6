"""ZeRO-2: as ZeRO-1, and gradients are sharded too: a block's are reduce-scattered, and freed, once they are ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import final

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from parbench.api import (
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduce_bytes,
    backward,
)
from parbench_strategies.sharded._flat import memory, shard_bytes
from parbench_strategies.sharded._shards import Shards


@final
class Zero2(Strategy):
    """Shards optimizer state and gradients: each block's gradients are reduce-scattered while backward goes on."""

    paper = Paper(
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models (Rajbhandari et al., 2020), P_os+g",
        "https://arxiv.org/abs/1910.02054",
    )
    agrees = "closely"
    consumes_model = True
    shards = ("optimizer state", "gradients")

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """A reduce-scatter of gradients per micro-batch, and an all-gather of parameters, each (n-1)/n P b."""
        size = shard_bytes(job, ctx)
        return {"reduce_scatter": size * ctx.accumulate, "all_gather": size}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """As much as data parallelism: the reduce-scatter and the all-gather are the two halves of an all-reduce."""
        return Textbook(formula="2(n-1)/n P b", sent_bytes=all_reduce_bytes(job, ctx))

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """All weights, 1/n of the gradients, and 1/n of the optimizer's state."""
        return memory(job, ctx, gradients_sharded=True)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Lay parameters out flat, one group per block, with a hook that notices when a block's gradients are ready."""
        return _Zero2Trainer(job, ctx)


@final
class _Zero2Trainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._shards = Shards(job, ctx)
        super().__init__(job, ctx, [self._shards.optimizer])
        self._ready = [0] * len(self._shards.groups)
        # Groups go out in one order on all ranks: last block first, whichever finishes first.
        self._next = len(self._shards.groups) - 1
        self._hooks: list[RemovableHandle] = []
        for k, parameters in enumerate(self._shards.parameters):
            for parameter in parameters:
                hook = parameter.register_post_accumulate_grad_hook(self._noticing(k))  # type: ignore[no-untyped-call]
                self._hooks.append(hook)

    def _noticing(self, k: int) -> Callable[[Tensor], None]:
        def notice(_: Tensor) -> None:
            self._ready[k] += 1
            while self._next >= 0 and self._ready[self._next] == len(self._shards.parameters[self._next]):
                self._send()

        return notice

    def _send(self) -> None:
        self._shards.groups[self._next].reduce()
        self._next -= 1
        if self._next < 0:  # the next micro-batch begins anew
            self._ready = [0] * len(self._shards.groups)
            self._next = len(self._shards.groups) - 1

    def step(self, batch: Batch) -> Tensor:
        loss = backward(self.job, self.ctx, self.job.model, batch)
        self._shards.update()
        return loss

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
