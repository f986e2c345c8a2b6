"""ZeRO-2: as ZeRO-1, and gradients are sharded too: a block's are reduce-scattered, and freed, once they are ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import final

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from parbench.api import Batch, Job, Paper, RankContext, Strategy, Trainer, backward
from parbench_strategies.sharded._flat import FlatGroup, members, shard_bytes
from parbench_strategies.sharded._replicated import Rest


@final
class Zero2(Strategy):
    """Shards optimizer state and gradients: each block's gradients are reduce-scattered while backward goes on."""

    paper = Paper(
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models (Rajbhandari et al., 2020), P_os+g",
        "https://arxiv.org/abs/1910.02054",
    )
    agrees = "closely"
    consumes_model = True

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """A reduce-scatter of gradients per micro-batch, and an all-gather of parameters, each (n-1)/n P b."""
        size = shard_bytes(job, ctx)
        return {"reduce_scatter": size * ctx.accumulate, "all_gather": size}

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Lay parameters out flat, one group per block, with a hook that notices when a block's gradients are ready."""
        return _Zero2Trainer(job, ctx)


@final
class _Zero2Trainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        self._job = job
        self._ctx = ctx
        found = [[p for _, p in group] for group in members(job)]
        self._groups = [FlatGroup(parameters, ctx) for parameters in found]
        self._sizes = [len(parameters) for parameters in found]
        self._ready = [0] * len(found)
        # Groups go out in one order on all ranks: last block first, whichever finishes first.
        self._next = len(found) - 1
        self._hooks: list[RemovableHandle] = []
        for k, parameters in enumerate(found):
            for parameter in parameters:
                hook = parameter.register_post_accumulate_grad_hook(self._noticing(k))  # type: ignore[no-untyped-call]
                self._hooks.append(hook)
        self._rest = Rest(job, ctx)
        shards: list[nn.Parameter] = [group.shard for group in self._groups]
        self._optimizer = job.optimizer([*shards, *self._rest.parameters])

    def _noticing(self, k: int) -> Callable[[Tensor], None]:
        def notice(_: Tensor) -> None:
            self._ready[k] += 1
            while self._next >= 0 and self._ready[self._next] == self._sizes[self._next]:
                self._send()

        return notice

    def _send(self) -> None:
        self._groups[self._next].reduce()
        self._next -= 1
        if self._next < 0:  # the next micro-batch begins anew
            self._ready = [0] * len(self._groups)
            self._next = len(self._groups) - 1

    def step(self, batch: Batch) -> Tensor:
        loss = backward(self._job, self._ctx, self._job.model, batch)
        for group in reversed(self._groups):
            group.wait()
        self._rest.average()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        for group in self._groups:
            group.gather()
        return loss

    def full_parameters(self) -> Mapping[str, Tensor]:
        return dict(self._job.model.named_parameters())

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
