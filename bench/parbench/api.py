"""The contract plug-ins see: what a strategy, a workload and a probe are given and what they must give back.

B global batch, S this rank's share of it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from parbench.comm import Comm, Handle
from parbench.record import Agrees, Series

__all__ = [
    "Agrees",
    "Batch",
    "Comm",
    "Handle",
    "Job",
    "Paper",
    "Probe",
    "RankContext",
    "Series",
    "Strategy",
    "Trainer",
    "Workload",
    "all_reduce_bytes",
    "backward",
]

Repeats = Literal["bitwise", "closely", "never"]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Paper:
    """Where an idea comes from."""

    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Inputs and targets of some samples; the first dimension of both counts samples."""

    inputs: Tensor
    targets: Tensor

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.inputs.shape[0]

    def share(self, rank: int, world_size: int) -> Batch:
        """Return this rank's contiguous part; sizes differ by at most one, and the last may be empty."""
        start, stop = (k * self.samples // world_size for k in (rank, rank + 1))
        return self.cut(start, stop)

    def micro(self, parts: int) -> Iterator[Batch]:
        """Cut into `parts` consecutive micro-batches; sizes differ by at most one."""
        return (self.share(k, parts) for k in range(parts))

    def cut(self, start: int, stop: int) -> Batch:
        """Return samples `start` to `stop` as views."""
        return Batch(inputs=self.inputs[start:stop], targets=self.targets[start:stop])

    def to(self, device: torch.device) -> Batch:
        """Return the same samples on `device`."""
        return Batch(inputs=self.inputs.to(device), targets=self.targets.to(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model, its data and how it learns, built for one device; strategies decide how it is spread.

    Attributes:
        model: the whole model; it mentions no strategy. `model(inputs)` gives the outputs.
        loss: (outputs, share) -> the *sum* over the share's samples of each sample's loss, a 0-d tensor. Divided by the
            number of samples of the global batch it is this share's part of the mean, however the batch is cut.
        optimizer: makes the optimizer for the parameters a rank holds.
        batch: step -> the global batch of that step (CPU tensors); the same on every rank, for any order of calls. The
            last batch of an epoch may be smaller.
        unit: what is counted besides samples: "samples" or "tokens".
        units_per_sample: how many of them one sample is.
        blocks: names of the sub-modules where FSDP wraps and pipelines cut, in forward order; applying them one after
            the other to the inputs is the model.
        shardings: parameter name pattern (fnmatch) -> "column" (cut along dim 0, weights and biases) or "row" (a weight
            cut along dim 1), for tensor parallelism.
        whole: pattern of `shardings` -> elements along the cut dim that must stay together, an attention head for one.
        unused: names of trainable parameters that a step may leave without a gradient.
        held_out: model -> {"loss": mean over held-out samples, "accuracy": fraction right}; None where the data is
            synthetic, with `held_out_reason`.
        held_out_reason: why there is no held-out data.
    """

    model: nn.Module
    loss: Callable[[Tensor, Batch], Tensor]
    optimizer: OptimizerFactory
    batch: Callable[[int], Batch]
    unit: str
    units_per_sample: int
    blocks: Sequence[str]
    shardings: Mapping[str, str] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    unused: Sequence[str] = ()
    held_out: Callable[[nn.Module], Mapping[str, float]] | None = None
    held_out_reason: str = "the data is synthetic: there is nothing to hold out"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """Who this rank is; nothing below it reads the process environment.

    Attributes:
        rank: 0 to world_size - 1.
        local_rank: the same, counted on this host.
        world_size: ranks that hold this variant.
        device: where this rank computes.
        dtype: arithmetic of forward and backward under autocast.
        comm: the door for collectives a strategy issues itself.
        accumulate: micro-batches a rank cuts its share into.
        generator: random numbers for the strategy, seeded per run, equal on all ranks.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    dtype: torch.dtype
    comm: Comm
    accumulate: int
    generator: torch.Generator

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which forward runs: autocast to `dtype`, or nothing for fp32."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def share(self, batch: Batch) -> Batch:
        """Return this rank's part of a global batch, on this rank's device."""
        return batch.share(self.rank, self.world_size).to(self.device)


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

    def close(self) -> None:
        """Release wrappers, hooks and groups; safe after a failed step."""
        return None


class Strategy(abc.ABC):
    """A way of spreading a job over ranks; its constructor's arguments are its parameters.

    Attributes:
        paper: where the idea comes from.
        agrees: how closely it trains as one process does on the same global batches.
        ranks: the world size it always uses; None takes whatever is asked for.
        period: steps after which its pattern repeats (local SGD's synchronisation); rounds are multiples of it.
        repeats: whether the same seed gives the same losses: "bitwise", "closely" (to 1e-6, where timing decides the
            order of additions) or "never" (asynchronous).
        consumes_model: whether wrapping changes the job's model for good, as sharding does.
    """

    paper: ClassVar[Paper]
    agrees: ClassVar[Agrees]
    ranks: ClassVar[int | None] = None
    repeats: ClassVar[Repeats] = "bitwise"
    consumes_model: ClassVar[bool] = False

    @property
    def period(self) -> int:
        """Steps after which the pattern of work repeats."""
        return 1

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Return a sentence saying why this job cannot run here, or None."""
        return None

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """Return the closed form of what this rank sends in a step once it runs steadily, or None where there is none.

        Returns:
            Operation ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "gather",
            "scatter", "reduce") -> logical bytes, as `parbench.counting` defines them; operations that send nothing
            are left out.
        """
        return None

    @abc.abstractmethod
    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Spread `job` over the ranks of `ctx`."""


class Workload(abc.ABC):
    """A model and its data; its constructor's arguments are its parameters.

    Attributes:
        unit: "samples" or "tokens".
        sizes: size name -> the settings that make it ("smoke" always, under a second on a CPU).
        source: where model and data come from, in a sentence.
        parameters: size name -> published number of trainable parameters, where it does not depend on the data.
    """

    unit: ClassVar[str]
    sizes: ClassVar[Mapping[str, Mapping[str, int]]]
    source: ClassVar[str]
    parameters: ClassVar[Mapping[str, int]] = {}

    def unsupported(self) -> str | None:
        """Return a sentence saying why this workload cannot be built here (a package or file is missing), or None."""
        return None

    def data_hash(self) -> str | None:
        """Return the hash of the data that is read, or None where it is generated from the seed."""
        return None

    @abc.abstractmethod
    def default_batch_size(self, size: str) -> int:
        """Return the global batch size to use where none is given."""

    @abc.abstractmethod
    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the job; the same arguments give the same weights and batches on every rank.

        Args:
            size: a key of `sizes`.
            seed: decides weights and batches; the global random state is left as it was.
            device: where the model lives ("meta" gives shapes only).
            global_batch_size: samples of a step, over all ranks.
        """


class Probe(abc.ABC):
    """A meter in one rank; one probe lives through many rounds, each from `start` to `stop`.

    Attributes:
        intrusive: whether it changes what it measures: then it runs in the traced pass only, never in timed rounds.
    """

    intrusive: ClassVar[bool] = False

    def unsupported(self, ctx: RankContext) -> str | None:
        """Return a sentence saying why it cannot measure here, or None."""
        return None

    @abc.abstractmethod
    def start(self, ctx: RankContext) -> None:
        """Begin a round."""

    def step(self) -> None:
        """Note the end of a step; must not wait for anything."""
        return None

    @abc.abstractmethod
    def stop(self) -> list[Series]:
        """End the round and return what was measured.

        Raises:
            RuntimeError: there was no `start`.
        """


def backward(
    job: Job,
    ctx: RankContext,
    model: nn.Module,
    batch: Batch,
    *,
    hold: Callable[[], AbstractContextManager[object]] | None = None,
) -> Tensor:
    """Accumulate this rank's gradients and return its loss, both scaled so that the mean over ranks is global.

    The share is cut into `ctx.accumulate` micro-batches. Every loss is a sum over samples; dividing by the global
    number of samples and multiplying by the world size makes averaging right for shares of any size, empty ones too.

    Args:
        job: whose loss is used.
        ctx: this rank.
        model: the model or a wrapper of it.
        batch: the global batch.
        hold: makes the context in which all micro-batches but the last run (DDP's `no_sync`).

    Returns:
        Detached 0-d tensor on this rank's device.
    """
    share = ctx.share(batch)
    scale = ctx.world_size / batch.samples
    total = torch.zeros((), device=ctx.device)
    for k, part in enumerate(share.micro(ctx.accumulate)):
        held = hold() if hold is not None and k < ctx.accumulate - 1 else nullcontext()
        with held:
            with ctx.autocast():
                outputs = model(part.inputs)
            loss = job.loss(outputs.float(), part) * scale
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def all_reduce_bytes(job: Job, ctx: RankContext) -> Fraction:
    """Return what a ring sends per rank to all-reduce every trainable parameter's gradient once: 2(n-1)/n P b."""
    size = sum(p.numel() * p.element_size() for p in job.model.parameters() if p.requires_grad)
    return Fraction(2 * (ctx.world_size - 1), ctx.world_size) * size
