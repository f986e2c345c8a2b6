"""Surroundings are what a strategy must leave as it found them: threads, groups, random states, hooks, files."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from parbench.api import Job
from parbench.counting import ByteCounter


def surroundings() -> dict[str, object]:
    """Return what a strategy must leave as it found it."""
    groups = dist.distributed_c10d._world.pg_map if dist.is_initialized() else {}
    return {
        "threads": sorted(t.name for t in threading.enumerate()),
        "process groups": len(groups),
        "default dtype": str(torch.get_default_dtype()),
        "torch's global random state": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "Python's global random state": hash(random.getstate()),
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "compute threads": torch.get_num_threads(),
        "files in the working folder": sorted(path.name for path in Path.cwd().iterdir()),
        "module hooks for all modules": _global_hooks(),
    }


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return what is not as it was, each in a few words."""
    return [
        f"{name}: {_short(before[name])} before, {_short(after[name])} after"
        for name in before
        if before[name] != after[name]
    ]


def _short(value: object) -> str:
    return str(value)[:80]


def _global_hooks() -> int:
    module = torch.nn.modules.module
    return sum(
        len(hooks) for name, hooks in vars(module).items() if name.startswith("_global_") and isinstance(hooks, dict)
    )


def hooks(model: nn.Module) -> list[str]:
    """Return the hooks that are on modules and parameters of `model`."""
    found = []
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            if getattr(module, kind):
                found.append(f"{kind.strip('_')} on module {name or 'model'}")
    for name, parameter in model.named_parameters():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(parameter, kind, None):
                found.append(f"{kind.strip('_')} on parameter {name}")
    return found


def still_communicates(job: Job) -> list[str]:
    """Return the collectives that a backward of the bare model still issues."""
    batch = job.batch(0)
    device = next(job.model.parameters()).device
    with ByteCounter() as counter:
        job.loss(job.model(batch.inputs.to(device)), batch.to(device)).backward()  # type: ignore[no-untyped-call]
    return [f"a backward of the bare model still issues {one.op}" for one in counter.seen]
