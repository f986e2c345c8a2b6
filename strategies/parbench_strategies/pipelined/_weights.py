"""The weight of a block is what a split balances: one each, bytes of memory, or measured time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from parbench.api import Job, RankContext, bytes_of, optimizer_bytes
from parbench_strategies.pipelined._boundaries import Boundary, Value

Split = Literal["count", "memory", "time"]

_TIMED = 3


def weights(split: Split, job: Job, ctx: RankContext, given: Sequence[Boundary], live: int) -> list[float]:
    """Return the weight of each block.

    Args:
        split: "count": 1 each; "memory": bytes of weights, gradients, optimizer state and of the results of `live`
            samples; "time": seconds of forward and backward on rank 0, the same numbers on every rank.
        job: whole.
        ctx: this rank, in the group of all ranks.
        given: what each block gives.
        live: samples whose activations a stage holds at a time.
    """
    blocks = [job.model.get_submodule(name) for name in job.blocks]
    if split == "count":
        return [1.0] * len(blocks)
    if split == "time":
        return _seconds(job, ctx, given)
    found = []
    for block, boundary in zip(blocks, given, strict=True):
        trained = [p for p in block.parameters() if p.requires_grad]
        state = optimizer_bytes(job, (p.numel() for p in trained))
        activations = boundary.bytes_per_sample * live
        found.append(float(bytes_of(block.parameters()) + bytes_of(trained) + state + activations))
    return found


def _seconds(job: Job, ctx: RankContext, given: Sequence[Boundary]) -> list[float]:
    """Time each block, forward and backward, on a micro-batch of one rank's size, and let rank 0's times count."""
    seconds_K = torch.zeros(len(job.blocks), dtype=torch.float64, device=ctx.device)
    if ctx.rank == 0:
        # Timing is no training: random numbers drawn and buffers written here are taken back.
        before = [buffer.clone() for buffer in job.model.buffers()]
        with torch.random.fork_rng([ctx.device] if ctx.device.type == "cuda" else []):
            _time(seconds_K, job, ctx)
        with torch.no_grad():
            for buffer, value in zip(job.model.buffers(), before, strict=True):
                buffer.copy_(value)
        for parameter in job.model.parameters():
            parameter.grad = None
    ctx.comm.broadcast(seconds_K)
    return [float(one) for one in seconds_K]


def _time(seconds_K: Tensor, job: Job, ctx: RankContext) -> None:
    x: Value = ctx.share(job.batch(0)).inputs
    for k, name in enumerate(job.blocks):
        block = job.model.get_submodule(name)
        taken = []
        for _ in range(_TIMED + 1):
            started_s = time.perf_counter()
            with ctx.autocast():
                result = block(x)
            results = [result] if isinstance(result, Tensor) else [one for one in result if one.grad_fn is not None]
            torch.autograd.backward(results, [torch.ones_like(one) for one in results])
            _settle(ctx)
            taken.append(time.perf_counter() - started_s)
        seconds_K[k] = statistics.median(taken[1:])
        x = _leaves(result)


def _leaves(value: Value) -> Value:
    if isinstance(value, Tensor):
        return value.detach().requires_grad_()
    return tuple(one.detach().requires_grad_() for one in value)


def _settle(ctx: RankContext) -> None:
    if ctx.device.type == "cuda":
        torch.cuda.synchronize(ctx.device)
