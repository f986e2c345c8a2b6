"""Backward of a rank's share: one way for every strategy that lets each rank compute whole samples."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from parbench.annotations import annotated
from parbench.context import RankContext
from parbench.job import Batch, Job


def backward(
    job: Job,
    ctx: RankContext,
    model: nn.Module,
    batch: Batch,
    *,
    hold: Callable[[], AbstractContextManager[object]] | None = None,
    share: Batch | None = None,
    samples: int | None = None,
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
        share: what this rank trains on, where that is not its share of the batch.
        samples: of all ranks' shares together, where they are not those of the batch.

    Returns:
        Detached 0-d tensor on this rank's device.
    """
    share = ctx.share(batch) if share is None else share.to(ctx.device)
    scale = ctx.world_size / (batch.samples if samples is None else samples)
    total = torch.zeros((), device=ctx.device)
    for k, part in enumerate(share.micro(ctx.accumulate)):
        held = hold() if hold is not None and k < ctx.accumulate - 1 else nullcontext()
        with held:
            with annotated("forward"):
                with ctx.autocast():
                    outputs = model(part.inputs)
                loss = job.loss(outputs.float(), part) * scale
            with annotated("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total
