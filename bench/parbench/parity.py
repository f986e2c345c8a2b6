"""Parity: the same global batches through one process and through the strategy, before any speed is believed.

Two optimizers are compared. SGD with momentum sees a gradient of the wrong scale, which Adam hides; the workload's own
sees what a strategy does to optimizer state.
"""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor, nn

from parbench.agreement import OWN, SGD
from parbench.api import Job, OptimizerFactory, RankContext, Strategy, backward
from parbench.axes import unscaling
from parbench.comm import Comm
from parbench.facts import ParityFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What one process computed: the loss of every step and the parameters before the first and after the last."""

    losses: tuple[float, ...]
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]


def _silent(phase: str) -> None:
    """Tell nobody."""


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def optimizers(job: Job) -> Mapping[str, OptimizerFactory]:
    """Return the optimizers that are compared, by name."""
    return {SGD: unscaling(_sgd, job.loss_scale), OWN: job.optimizer}


def reference(job: Job, ctx: RankContext, steps: int, say: Callable[[str], None] = _silent) -> Reference:
    """Train `job` for `steps` steps in this process alone.

    Args:
        job: a fresh job; its model is changed.
        ctx: the rank's context, of which only device, dtype and accumulation are used.
        steps: steps from step 0.
        say: told before every step, which shows that something moves.
    """
    alone = replace(ctx, rank=0, world_size=1, comm=Comm(None, 0, 1))
    before = _copies(job.model)
    optimizer = job.optimizer(job.model.parameters())
    losses = []
    for step in range(steps):
        say(f"one-process reference step {step}")
        optimizer.zero_grad(set_to_none=True)
        losses.append(backward(job, alone, job.model, job.batch(step)))
        optimizer.step()
    values = tuple(float(x) / job.loss_scale for x in losses)
    return Reference(losses=values, before=before, after=_copies(job.model))


def compare(
    strategy: Strategy,
    build: Callable[[], Job],
    ctx: RankContext,
    steps: int,
    references: Callable[[str], Reference] | None,
    say: Callable[[str], None] = _silent,
) -> tuple[ParityFacts, ...]:
    """Train fresh copies of the job under `strategy` and return what this rank saw.

    Args:
        strategy: what is checked.
        build: makes the job from its first weights.
        ctx: this rank.
        steps: steps to compare.
        references: optimizer name -> the one-process result; None on ranks that do not judge.
        say: told before every step, which shows that something moves.
    """
    return tuple(compare_one(strategy, build(), name, ctx, steps, references, say) for name in (SGD, OWN))


def compare_one(
    strategy: Strategy,
    job: Job,
    name: str,
    ctx: RankContext,
    steps: int,
    references: Callable[[str], Reference] | None,
    say: Callable[[str], None],
) -> ParityFacts:
    """Train `job` under `strategy` with one optimizer and return what this rank saw; as `compare` otherwise.

    Args:
        strategy: what is checked.
        job: a fresh job.
        name: the optimizer, `SGD` or `OWN`.
        ctx: this rank.
        steps: steps to compare.
        references: optimizer name -> the one-process result; None on ranks that do not judge.
        say: told what is being done.
    """
    trainer = strategy.wrap(replace(job, optimizer=optimizers(job)[name]), ctx)
    losses = []
    for step in range(steps):
        say(f"parity with {name}, step {step}")
        losses.append(trainer.step(job.batch(step)))
    trainer.drain()
    parameters = trainer.full_parameters()
    given = [None if x is None else float(x) / job.loss_scale for x in losses]
    values = tuple(None if x is None else _finite(x) for x in given)
    bad = [step for step, x in enumerate(given) if x is not None and not math.isfinite(x)]
    if bad:
        facts = ParityFacts(optimizer=name, losses=values, problem=f"the loss of step {bad[0]} is not finite")
    elif references is None:
        facts = ParityFacts(optimizer=name, losses=values)
    else:
        facts = _judge(name, values, parameters, references(name))
    held = trainer.holding()
    facts = msgspec.structs.replace(facts, digest=digest_of(parameters), held=None if held is None else held.bytes_of())
    # Not after a failure, which ends the rank: closing would only hide what happened.
    trainer.close()
    del trainer, parameters, held
    gc.collect()
    return facts


def digest_of(parameters: Mapping[str, Tensor]) -> str:
    """Return a hash of names, shapes and bits of `parameters`: ranks that hold replicas have the same one."""
    found = hashlib.sha256()
    for name in sorted(parameters):
        value = parameters[name].detach().cpu().contiguous()
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def fill(model: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> str | None:
    """Copy trained parameters and buffers into a fresh model; return why that cannot be done."""
    wanted = dict(model.named_parameters())
    if (problem := mismatch(wanted, parameters)) is not None:
        return f"the strategy's full parameters are not the model's: {problem}"
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(parameters[name])
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers.get(name, buffer))
    return None


def mismatch(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str | None:
    """Return how two sets of parameters differ in names or shapes, or None if they do not."""
    missing = wanted.keys() ^ given.keys()
    if missing:
        return f"parameters that only one side has: {', '.join(sorted(missing)[:3])}"
    for name, tensor in wanted.items():
        if tensor.shape != given[name].shape:
            return f"{name} has shape {tuple(given[name].shape)}, one process has {tuple(tensor.shape)}"
    return None


def _judge(
    name: str, losses: tuple[float | None, ...], parameters: Mapping[str, Tensor], reference: Reference
) -> ParityFacts:
    if (problem := mismatch(reference.after, parameters)) is not None:
        return ParityFacts(optimizer=name, losses=losses, reference=reference.losses, problem=problem)
    largest, squared_error, squared_move = 0.0, 0.0, 0.0
    for key, after in reference.after.items():
        error = (parameters[key].detach().to(after) - after).double()
        largest = max(largest, float(error.abs().max())) if error.numel() else largest
        squared_error += float(error.square().sum())
        squared_move += float((after - reference.before[key]).double().square().sum())
    update_error = math.sqrt(squared_error / squared_move) if squared_move else (0.0 if not squared_error else math.inf)
    finite = math.isfinite(largest) and math.isfinite(update_error)
    return ParityFacts(
        optimizer=name,
        losses=losses,
        reference=reference.losses,
        parameter_difference=_finite(largest),
        update_error=_finite(update_error),
        problem=None if finite else "parameters are not finite, or moved where one process did not",
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}
