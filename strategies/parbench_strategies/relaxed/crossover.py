"""Crossover: two jobs share the ranks, and one computes while the gradients of the other are on their way.

compute   A0 ══ B0 ══ A1 ══ B1 ══      a rank computes for one job at a time, in the same turn on every rank
channel 0     ── A0 ──    ── A1 ──     A's gradients travel while B computes, and A's step waits for them
channel 1         ── B0 ──    ── B1 ──
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import (
    Agrees,
    Batch,
    Comm,
    Handle,
    Holding,
    Job,
    Memory,
    Paper,
    Point,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduced,
    backward,
    bytes_of,
    data_parallel,
    replicated_memory,
    stepped,
)
from parbench_strategies.relaxed._averaging import start_equal

_JOBS = ("first", "second")


@final
class Crossover(Strategy):
    """Trains two copies of the job in turns, each synchronously, on the batches of every second step.

    The paper shares ranks between any two jobs and lets a scheduler grant turns; here both are the same workload from
    the same weights, and turns are fixed. A step is one job's, so that rates are those of both together. What is asked
    of the model (agreement, held-out data) is answered by the first job's; what the second does is in the notes.
    """

    paper = Paper(
        "CrossoverScheduler: Overlapping Multiple Distributed Training Applications in a Crossover Manner "
        "(Luo et al., 2021)",
        "https://arxiv.org/abs/2103.07974",
    )
    point = Point(synchrony="every step; two jobs in turns", order="one job, then the other")
    agrees: Agrees = "differently"  # each job sees half of the batches
    steps_together = False  # a job's optimizer steps when its turn comes again

    @property
    def period(self) -> int:
        """One step of either job."""
        return len(_JOBS)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """A step all-reduces the gradients of one job."""
        return {"all_reduce": all_reduced(bytes_of(stepped(job)), ctx.world_size)}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of one job's gradients."""
        return data_parallel(job, ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Everything is there twice: while one job's gradients are made, the other's travel."""
        one = replicated_memory(job)
        return Memory(
            parameters=2 * one.parameters,
            gradients=2 * one.gradients,
            optimizer=2 * one.optimizer,
            buffers=2 * one.buffers,
        )

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Give both jobs on every rank the weights of rank 0."""
        return _CrossoverTrainer(job, ctx)


@final
class _OneOfTwo:
    """One job's weights, optimizer and channel; the model is lent to it while it computes.

    Args:
        job: the model and how it learns.
        comm: the channel of this job alone.
        shared: whether its weights are the model's own, or copies of them.
    """

    def __init__(self, job: Job, comm: Comm, *, shared: bool) -> None:
        self.parameters = {
            name: nn.Parameter(p.detach() if shared else p.detach().clone(), requires_grad=p.requires_grad)
            for name, p in job.model.named_parameters()
        }
        # Tensors of their own in any case: the model's are pointed at the other job's in turn.
        self.buffers = {name: b.detach() if shared else b.clone() for name, b in job.model.named_buffers()}
        self.optimizer = job.optimizer(self.parameters.values())
        self.steps, self.waited_s = 0, 0.0
        self.loss: Tensor | None = None
        self._model, self._comm = job.model, comm
        self._sent: list[tuple[Handle, list[nn.Parameter]]] = []

    def borrow(self) -> nn.Module:
        """Return the model with this job's weights in it, and no gradients."""
        for name, parameter in self._model.named_parameters():
            parameter.data, parameter.grad = self.parameters[name].data, None
        for name, buffer in self._model.named_buffers():
            buffer.data = self.buffers[name].data
        return self._model

    def send(self, loss: Tensor) -> None:
        """Start averaging the gradients that backward has left in the model."""
        self.loss, self.steps = loss, self.steps + 1
        grads = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        for dtype in dict.fromkeys(grad.dtype for grad in grads.values()):
            alike = {name: grad for name, grad in grads.items() if grad.dtype is dtype}
            message_N = torch.cat([grad.reshape(-1) for grad in alike.values()])
            self._sent.append((self._comm.mean_async(message_N), [self.parameters[name] for name in alike]))
        for parameter in self._model.parameters():
            parameter.grad = None

    def settle(self, *, update: bool = True) -> None:
        """Wait for the averages and step the optimizer; does nothing where nothing was sent."""
        if not self._sent:
            return
        started_s = time.perf_counter()
        for handle, alike in self._sent:
            parts = torch.split(handle.wait(), [p.numel() for p in alike])
            for parameter, part in zip(alike, parts, strict=True):
                parameter.grad = part.view(parameter.shape)
        self.waited_s += time.perf_counter() - started_s
        self._sent = []
        if update:
            self.optimizer.step()
        self.optimizer.zero_grad()


@final
class _CrossoverTrainer(Trainer):
    def __init__(self, job: Job, ctx: RankContext) -> None:
        start_equal(job.model, ctx.comm)
        self._job, self._ctx = job, ctx
        everyone = range(ctx.world_size)
        self.jobs: Sequence[_OneOfTwo] = [
            _OneOfTwo(job, ctx.comm.subset(everyone, copy), shared=copy == 0) for copy in range(len(_JOBS))
        ]
        self._steps = 0

    def step(self, batch: Batch) -> Tensor:
        mine = self.jobs[self._steps % len(self.jobs)]
        self._steps += 1
        mine.settle()
        loss = backward(self._job, self._ctx, mine.borrow(), batch)
        mine.send(loss)
        return loss

    def drain(self) -> None:
        """Complete the last step of both jobs."""
        for one in self.jobs:
            one.settle()

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Return the first job's parameters."""
        return self.jobs[0].parameters

    def full_buffers(self) -> Mapping[str, Tensor]:
        """Return the first job's buffers."""
        return self.jobs[0].buffers

    def holding(self) -> Holding:
        """Return what both jobs keep."""
        return Holding(
            parameters=[p for one in self.jobs for p in one.parameters.values()],
            optimizers=[one.optimizer for one in self.jobs],
            buffers=[b for one in self.jobs for b in one.buffers.values()],
        )

    def notes(self) -> Mapping[str, str | int | float]:
        """Return the record of either job: its steps, its last loss, and how long a step waited for its gradients."""
        found: dict[str, str | int | float] = {}
        for name, one in zip(_JOBS, self.jobs, strict=True):
            found[f"{name}_job_steps"] = one.steps
            if one.loss is not None:
                found[f"{name}_job_loss"] = float(one.loss) / self._job.loss_scale
                found[f"{name}_job_waited_s_per_step"] = one.waited_s / one.steps
        return found

    def close(self) -> None:
        """Wait for what is on its way, so that no exchange outlives its group."""
        for one in self.jobs:
            one.settle(update=False)
