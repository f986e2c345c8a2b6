"""A Trainer is a job spread over ranks, ready to step."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from parbench.annotations import annotated
from parbench.context import RankContext
from parbench.holding import Holding
from parbench.job import Batch, Job


class Trainer(abc.ABC):
    """A job spread over ranks, ready to step; every rank of the variant calls every method in the same order."""

    @abc.abstractmethod
    def step(self, batch: Batch) -> Tensor | None:
        """Train on one global batch.

        Returns:
            A detached 0-d tensor, not synchronised; its mean over the ranks that return one is the mean loss of the
            global batch. None on ranks that never see a loss.
        """

    def drain(self) -> None:
        """Complete everything `step` left pending; does nothing unless work outlives a step."""
        return None

    @abc.abstractmethod
    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return all parameters by the names of the job's model, gathered where sharded; for checks only."""

    def left_out(self) -> int:
        """Return how many samples of its shares this rank has left out so far, which nobody trained on."""
        return 0

    def full_buffers(self) -> Mapping[str, Tensor]:
        """Return all buffers by the names of the job's model, where it has any; for checks only."""
        return {}

    def notes(self) -> Mapping[str, str | int | float]:
        """Return what is particular to this rank or its plan (a split, a place in a mesh), for the record."""
        return {}

    def holding(self) -> Holding | None:
        """Return what this rank keeps from step to step, for checks only; None where the trainer does not say."""
        return None

    def close(self) -> None:
        """Release wrappers, hooks and groups; safe after a failed step."""
        return None


class ModelTrainer(Trainer):
    """A trainer whose rank holds the job's own model: its parameters whole, or cut as DTensors.

    Args:
        job: the job; its model may have been changed by the strategy already.
        ctx: this rank.
        optimizers: what steps the parameters.
    """

    def __init__(self, job: Job, ctx: RankContext, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.job = job
        self.ctx = ctx
        self.optimizers = optimizers

    def zero_grad(self) -> None:
        """Drop the gradients of the last step."""
        with annotated("optimizer"):
            for parameter in self.job.model.parameters():
                parameter.grad = None

    def update(self) -> None:
        """Step every optimizer."""
        with annotated("optimizer"):
            for optimizer in self.optimizers:
                optimizer.step()

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return the model's parameters, cut ones gathered."""
        return {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in self.job.model.named_parameters()}

    def full_buffers(self) -> Mapping[str, Tensor]:
        """Return the model's buffers."""
        return dict(self.job.model.named_buffers())

    def holding(self) -> Holding | None:
        """Return the model's parameters and buffers and the optimizers' state."""
        model = self.job.model
        return Holding(parameters=list(model.parameters()), optimizers=self.optimizers, buffers=list(model.buffers()))
