"""A Job is one model, its data and how it learns, built for one device; a Batch is some samples of it.

B global batch, S this rank's share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


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
        """Return the same samples on `device`; from pinned memory a GPU copies while the host goes on."""
        inputs, targets = (t.to(device, non_blocking=device.type == "cuda") for t in (self.inputs, self.targets))
        return Batch(inputs=inputs, targets=targets)

    def pinned(self) -> Batch:
        """Return the same samples in pinned memory."""
        return Batch(inputs=self.inputs.pin_memory(), targets=self.targets.pin_memory())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model, its data and how it learns, built for one device; strategies decide how it is spread.

    Attributes:
        model: the whole model; it mentions no strategy. `model(inputs)` gives the outputs.
        loss: (outputs, share) -> the *sum* over the share's samples of each sample's loss, a 0-d tensor. Divided by the
            number of samples of the global batch it is this share's part of the mean, however the batch is cut.
        optimizer: makes the optimizer for the parameters a rank holds.
        batch: step -> the global batch of that step (CPU tensors); the same on every rank, for any order of calls and
            from any thread. The last batch of an epoch may be smaller.
        unit: what is counted besides samples: "samples" or "tokens".
        units_per_sample: how many of them one sample is.
        blocks: names of the sub-modules where FSDP wraps and pipelines cut, in forward order; applying them one after
            the other to the inputs is the model. A block may take and give a tuple of floating-point tensors: one that
            skips some blocks (a U-Net's) travels with what passes through them.
        shardings: parameter name pattern (fnmatch) -> how tensor parallelism may cut it: "column" (along dim 0, weights
            and biases), "row" (a weight along dim 1), "position" (the layer treats each position by itself, as a norm
            does, so that positions may be shared out; its own parameters stay whole) or "vocabulary" (the layer that
            gives one logit per word, a weight along dim 0).
        whole: pattern of `shardings` -> elements along the cut dim that must stay together, an attention head for one.
        unused: names of trainable parameters that a step may leave without a gradient; on some ranks only is
            what `ddp`, `horovod_like` and `replicated` cope with, and other families do not.
        sparse: names of parameters whose gradients are sparse: of touched rows alone.
        held_out: model -> {"loss": mean over held-out samples, "accuracy": fraction right, and what else the field
            judges such a model by ("roc_auc", "dice"), from 0 to 1}; None where there is no such data, with
            `held_out_reason`.
        held_out_reason: why there is no held-out data.
        steps_per_epoch: steps in which every train sample comes once; None where the data has no epochs.
        loss_scale: factor that `loss` holds beside the sum, for half precision; who reports a loss divides by it.
        notes: what is particular to its data, for the record.
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
    sparse: Sequence[str] = ()
    held_out: Callable[[nn.Module], Mapping[str, float]] | None = None
    held_out_reason: str = "the data is synthetic: there is nothing to hold out"
    steps_per_epoch: int | None = None
    loss_scale: float = 1.0
    notes: Mapping[str, str | int | float] = field(default_factory=dict)
