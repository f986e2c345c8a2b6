"""DistributedDataParallel: buckets of gradients are all-reduced while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Final, final

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from parbench.api import (
    Agrees,
    Batch,
    Job,
    Memory,
    ModelTrainer,
    Paper,
    Point,
    RankContext,
    Strategy,
    Textbook,
    Trainer,
    all_reduce_bytes,
    all_reduced,
    backward,
    bytes_of,
    data_parallel,
    replicated_memory,
    trained_bytes,
)
from parbench_strategies.replicated._round_robin import round_robin

_MOST_GROUPS: Final = 64
_BYTES_OF_A_MARK: Final = 4  # an int32 per parameter says whether any rank used it


# More would not average once in any run.
_MOST_STEPS = 100_000


@final
class Ddp(Strategy):
    """All-reduces buckets of gradients while backward goes on, with torch's DistributedDataParallel.

    Args:
        bucket_cap_mb: size of every bucket in MiB; None is torch's own choice, 25 and 1 for the first bucket.
        static_graph: promise torch that every step uses the same parameters, so that it need not look.
        gradient_as_bucket_view: keep gradients in the buckets instead of copying them there.
        sync_every: steps whose gradients are added up on each rank before they are averaged, over ranks and over these
            steps, for one step of the optimizer (section 3.2.4 of the paper). It multiplies the batch that the
            optimizer sees, and divides its steps.
        process_groups: copies of the process group; bucket after bucket goes to the next (sections 3.3 and 5.4).
    """

    paper = Paper(
        "PyTorch Distributed: Experiences on Accelerating Data Parallel Training (Li et al., 2020)",
        "https://arxiv.org/abs/2006.15704",
    )
    point = Point(fusion="fixed buckets")
    agrees: Agrees = "closely"

    def __init__(
        self,
        bucket_cap_mb: float | None = None,
        static_graph: bool = False,
        gradient_as_bucket_view: bool = False,
        sync_every: int = 1,
        process_groups: int = 1,
    ) -> None:
        if bucket_cap_mb is not None and not 0 < bucket_cap_mb < 1e6:
            raise ValueError(f"bucket_cap_mb must be above 0 and below 1e6, got {bucket_cap_mb}")
        if not 1 <= sync_every <= _MOST_STEPS:
            raise ValueError(
                f"sync_every must be at least 1 (every step is averaged) and {_MOST_STEPS} at most, got {sync_every}"
            )
        if not 1 <= process_groups <= _MOST_GROUPS:
            raise ValueError(f"process_groups must be from 1 to {_MOST_GROUPS}, got {process_groups}")
        self.bucket_cap_mb = bucket_cap_mb
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.sync_every = sync_every
        self.process_groups = process_groups
        if sync_every > 1:
            self.agrees = "differently"

    @property
    def period(self) -> int:
        """Steps from one average to the next."""
        return self.sync_every

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction]:
        """Per step of a period: buckets are all-reduced once in it, unused parameters included.

        Where parameters may be unused, so are the marks of which are. Rank 0 broadcasts the buffers once a period.
        """
        if ctx.world_size == 1:
            return {}
        reduced = all_reduce_bytes(job, ctx)
        if job.unused and not self.static_graph:
            marks = sum(_BYTES_OF_A_MARK for p in job.model.parameters() if p.requires_grad)
            reduced += all_reduced(marks, ctx.world_size)
        buffers = bytes_of(job.model.buffers()) if ctx.rank == 0 else 0
        sent = {"all_reduce": reduced, "broadcast": Fraction(buffers)}
        return {op: size / self.sync_every for op, size in sent.items() if size}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook:
        """A ring all-reduce of all gradients, once a period."""
        every_step = data_parallel(job, ctx)
        if self.sync_every == 1:
            return every_step
        return Textbook(formula="2(n-1)/n P b / k", sent_bytes=every_step.sent_bytes / self.sync_every)

    def memory(self, job: Job, ctx: RankContext) -> Memory:
        """Every rank repeats everything; its buckets hold all gradients, a second time unless gradients are views."""
        whole = replicated_memory(job)
        if ctx.world_size == 1:
            return whole
        beside = 0 if self.gradient_as_bucket_view else whole.gradients
        return replace(whole, gradients=trained_bytes(job) + beside)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Wrap the model; one rank has nobody to exchange with and trains bare."""
        return _DdpTrainer(job, ctx, self)

    def wrapped(self, job: Job, ctx: RankContext) -> DistributedDataParallel:
        """Return torch's wrapper of the model, with these arguments."""
        ddp = DistributedDataParallel(
            job.model,
            device_ids=[ctx.device.index or 0] if ctx.device.type == "cuda" else None,
            process_group=ctx.comm.group,
            bucket_cap_mb=self.bucket_cap_mb,
            # A static graph finds them by itself, once.
            find_unused_parameters=bool(job.unused) and not self.static_graph,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            static_graph=self.static_graph,
        )
        if self.process_groups > 1:
            copies = [ctx.comm.subset(range(ctx.world_size), copy).group for copy in range(self.process_groups)]
            ddp.register_comm_hook([group for group in copies if group is not None], round_robin)
        return ddp


def _divided(loss: Callable[[Tensor, Batch], Tensor], by: int) -> Callable[[Tensor, Batch], Tensor]:
    def part(outputs: Tensor, batch: Batch) -> Tensor:
        return loss(outputs, batch) / by

    return part


@final
class _DdpTrainer(ModelTrainer):
    def __init__(self, job: Job, ctx: RankContext, strategy: Ddp) -> None:
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        self._ddp = strategy.wrapped(job, ctx) if ctx.comm.group is not None else None
        self._model: nn.Module | None = self._ddp or job.model
        self._static_graph = strategy.static_graph
        self._sync_every = strategy.sync_every
        # Each step's gradients are of its mean loss; the optimizer is given the mean over the steps of a period.
        self._part = replace(job, loss=_divided(job.loss, strategy.sync_every)) if strategy.sync_every > 1 else job
        self._steps = 0

    def step(self, batch: Batch) -> Tensor:
        if self._model is None:
            raise RuntimeError("step after close")
        if self._steps % self._sync_every == 0:
            self.zero_grad()
        self._steps += 1
        due = self._steps % self._sync_every == 0
        with nullcontext() if due else self._alone():
            loss = backward(self._part, self.ctx, self._model, batch, hold=self._alone)
        if due:
            self.update()
        return loss * self._sync_every if self._sync_every > 1 else loss

    def _alone(self) -> AbstractContextManager[object]:
        """Return the context in which a backward keeps its gradients to this rank."""
        # torch learns a static graph from the first backward, and fails an assertion if that does not communicate
        # (pytorch/pytorch#143580). Averaging oftener is only slower: a mean that all ranks hold stays as it is.
        if self._ddp is None or (self._static_graph and self._steps == 1):
            return nullcontext()
        return self._ddp.no_sync()

    def close(self) -> None:
        # A wrapper alive when its process group is destroyed can hang the rank.
        self._ddp = self._model = None
