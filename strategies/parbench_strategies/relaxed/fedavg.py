"""FedAvg: every rank is a client that trains on its own data for some epochs; then their weights are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import (
    Agrees,
    Batch,
    Comm,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    Point,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    backward,
    data_parallel,
    replicated_memory,
)
from parbench_strategies.relaxed._averaging import average, drifting, forget, start_equal
from parbench_strategies.relaxed._closed import MOST_STEPS, averaged_bytes
from parbench_strategies.relaxed._partition import portion, refusal


@final
class Fedavg(Strategy):
    """Averages what clients learnt from their own data, weighted by how much that is.

    A step is a round: the ranks are the clients drawn for it, and a rank's share of the global batch is what its client
    holds. A client begins with the common weights and a fresh optimizer, and passes over its data `local_epochs` times.
    One epoch in one batch (`local_batch_size=inf`) is synchronous SGD, without momentum: clients begin each round
    without any.

    Args:
        local_epochs: passes of a client over its data in a round; the paper's E.
        local_batch_size: samples of a client's step; the paper's B.
        partition: which data clients hold: their "shares" of the batch, or all samples of some "labels", so that data
            are not identically distributed.
    """

    paper = Paper(
        "Communication-Efficient Learning of Deep Networks from Decentralized Data (McMahan et al., 2017)",
        "https://arxiv.org/abs/1602.05629",
    )
    point = Point(fusion="the model as one message", synchrony="every round of local epochs")
    agrees: Agrees = "differently"
    steps_together = False  # several local steps in each

    def __init__(
        self,
        local_epochs: int = 5,
        local_batch_size: int | float = 10,
        partition: Literal["shares", "labels"] = "shares",
    ) -> None:
        if not 1 <= local_epochs <= MOST_STEPS:
            raise ValueError(f"local_epochs must be from 1 to {MOST_STEPS}, got {local_epochs}")
        if not (local_batch_size >= 1 and (local_batch_size == int(local_batch_size) if local_batch_size < 1e9 else 1)):
            raise ValueError(f"local_batch_size must be a whole number of samples, or inf, got {local_batch_size}")
        self.local_epochs = local_epochs
        self.local_batch_size = local_batch_size
        self.partition: Literal["shares", "labels"] = partition

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Ask whether samples have labels, where clients are to hold some of them."""
        return refusal(self.partition, job)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """The model is all-reduced once a round."""
        return averaged_bytes(job, ctx, period=1)

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all weights; the paper's server receives and sends P b per client."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything."""
        return replicated_memory(job)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give every rank the weights of rank 0."""
        return _FedavgTrainer(job, ctx, self)


@final
class _FedavgTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: Fedavg) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        start_equal(job.model, ctx.comm)
        self._strategy = strategy
        self._alone = replace(ctx, rank=0, world_size=1, comm=Comm(None, 0, 1))
        self._local_steps = 0

    def step(self, batch: Batch) -> Tensor:
        """Take part in one round.

        Returns:
            What makes the mean over ranks that of the batch, as the first epoch saw it.
        """
        strategy, ctx = self._strategy, self.ctx
        mine = portion(strategy.partition, self.job, 0, batch, ctx.rank, ctx.world_size).to(ctx.device)
        weight = mine.samples * self.ctx.world_size / batch.samples
        loss = torch.zeros((), device=self.ctx.device)
        for optimizer in self.optimizers:
            forget(optimizer)
        for epoch in range(strategy.local_epochs if mine.samples else 0):
            for part in mine.micro(self._parts(mine)):
                self.zero_grad()
                seen = backward(self.job, self._alone, self.job.model, part)
                self.update()
                self._local_steps += 1
                if epoch == 0:
                    loss += seen * (part.samples * self.ctx.world_size / batch.samples)
        average(drifting(self.job.model), self.ctx.comm, weight)
        return loss

    def _parts(self, mine: Batch) -> int:
        return -(-mine.samples // int(min(self._strategy.local_batch_size, mine.samples)))

    def notes(self) -> Mapping[str, str | int | float]:
        """Return how many steps this client took."""
        return {"local_steps": self._local_steps}
