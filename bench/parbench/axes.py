"""Axes change how any job is computed, whatever the strategy: recomputation, compilation, the loss scale of fp16.

They are put on the job before a strategy spreads it, so that no strategy knows of them:

    block.forward  =  compiled( checkpointed( forward ) )      names, parameters and hooks of the model stay as they are
    job.loss       =  scale x loss                              fp16 only
    job.optimizer  =  gradients / scale, then the optimizer     fp16 only
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from parbench.job import Batch, Job, OptimizerFactory
from parbench.spec import RunSpec

Value = Tensor | tuple[Tensor, ...]
Forward = Callable[[Value], Value]

# Static loss scaling (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2): small gradients would vanish
# in fp16. A power of two, so that scaling and unscaling round nothing.
FP16_LOSS_SCALE: Final = 1024.0

# What selective recomputation keeps: outputs that cost more to compute again than to hold.
_KEPT = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution", "linear"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
)


def unsupported(spec: RunSpec) -> str | None:
    """Return a sentence saying why an axis of `spec` cannot run on this machine, or None."""
    if spec.compile and not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return "compilation needs a C++ compiler, and there is none; install g++, or leave --compile out"
    return None


def applied(job: Job, spec: RunSpec) -> Job:
    """Return `job` with the axes of `spec` put on; its model's blocks get another `forward`."""
    for name in job.blocks if spec.recompute != "none" or spec.compile else ():
        block = job.model.get_submodule(name)
        forward: Forward = block.forward
        if spec.recompute != "none":
            forward = functools.partial(_checkpointed, forward, spec.recompute == "selective")
        if spec.compile:
            forward = _compiled(forward)
        # On the instance: a wrapper module would change the names of all parameters.
        block.forward = forward
    return _scaled(job, FP16_LOSS_SCALE) if spec.precision == "fp16" else job


def _checkpointed(forward: Forward, selective: bool, inputs: Value) -> Value:
    if not torch.is_grad_enabled():
        return forward(inputs)
    # Dynamo cannot trace checkpoint's own default for the context function when it is passed.
    found: Value = (
        checkpoint.checkpoint(forward, inputs, use_reentrant=False, context_fn=_selective)
        if selective
        else checkpoint.checkpoint(forward, inputs, use_reentrant=False)
    )
    return found


def _selective() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    both: tuple[AbstractContextManager[object], AbstractContextManager[object]]
    both = checkpoint.create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return both


def _policy(context: object, op: object, *args: object, **kwargs: object) -> checkpoint.CheckpointPolicy:
    kept = str(op).split(".")[1] in _KEPT  # "aten.addmm.default"
    return checkpoint.CheckpointPolicy.MUST_SAVE if kept else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE


def _compiled(forward: Forward) -> Forward:
    import torch._inductor.config as inductor

    # Its pool of compiler processes would outlive a rank that is ended.
    inductor.compile_threads = 1
    return torch.compile(forward)


def _scaled(job: Job, scale: float) -> Job:
    def loss(outputs: Tensor, batch: Batch) -> Tensor:
        return job.loss(outputs, batch) * scale

    return replace(job, loss=loss, optimizer=unscaling(job.optimizer, scale), loss_scale=scale)


def unscaling(optimizer: OptimizerFactory, scale: float) -> OptimizerFactory:
    """Return a factory whose optimizers divide gradients by `scale` before they step."""

    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        found = optimizer(parameters)
        if scale != 1.0:
            found.register_step_pre_hook(functools.partial(_unscale, scale))
        return found

    return made


def _unscale(scale: float, optimizer: torch.optim.Optimizer, args: Sequence[object], kwargs: object) -> None:
    for group in optimizer.param_groups:
        grads = [p.grad for p in group["params"] if p.grad is not None]
        for grad in (g for g in grads if g.is_sparse):
            grad.mul_(1 / scale)
        # One call for all: this is in every step. The scale is a power of two, so its inverse is exact.
        if dense := [g for g in grads if not g.is_sparse]:
            torch._foreach_mul_(dense, 1 / scale)
