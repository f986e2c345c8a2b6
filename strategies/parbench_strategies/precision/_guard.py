"""The Guard stands before the optimizer: it undoes the loss scale, skips a step that overflowed anywhere, and clips.

backward ── gradients x scale ── exchange ── guard ── optimizer
                                               │
              every rank: sum of squares, anything not finite?  ── added over ranks (8 bytes) ── skip, or / scale, clip

Where one rank alone updates the weights (a parameter server) it decides alone, and tells the others after the step.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from parbench.api import Job, RankContext, all_reduced
from parbench_strategies.precision._half import Wide
from parbench_strategies.precision._scale import Scale

_BYTES: Final = 8  # two numbers: the sum of squares, and how many ranks saw what is not finite
_COUNTED_EVERY: Final = 16  # steps between two counts of zeros, which read all gradients


def sent_bytes(world_size: int, period: int) -> Fraction:
    """Return what a rank sends in a step, beside what the strategy sends, so that all decide alike."""
    return all_reduced(Fraction(_BYTES, period), world_size)


@final
class Guard:
    """Decides, once per step of the optimizers, what becomes of the gradients.

    Args:
        job: whose parameters are watched in backward, where a compressor may hide what is not finite.
        ctx: this rank.
        scale: of the loss; updated once per step.
        clip: the largest norm of all gradients together; None is any.
    """

    def __init__(self, job: Job, ctx: RankContext, scale: Scale, clip: float | None) -> None:
        self._ctx = ctx
        self._scale = scale
        self._already = job.loss_scale
        self._clip = clip
        self._optimizers: list[tuple[weakref.ref[torch.optim.Optimizer], list[nn.Parameter]]] = []
        self._whole = {id(p) for p in job.model.parameters()}
        self._recording = self._everyone = True
        self._stepping = False
        self._decided: bool | None = None
        self._factor = 1.0
        self._seen: Tensor | float = 0.0
        self._zeros: list[float] = []
        self._clipped = self._decisions = 0
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._look)  # type: ignore[no-untyped-call]
            for p in job.model.parameters()
            if p.requires_grad
        ]

    def guarded(self, job: Job) -> Job:
        """Return `job` with its loss scaled, and with optimizers that ask here before they step."""

        def loss(outputs: Tensor, share: object) -> Tensor:
            return job.loss(outputs, share) * self._scale.value  # type: ignore[arg-type]

        def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
            own = list(parameters)
            if not self._recording:
                return job.optimizer(own)
            wide = Wide(own)
            made = job.optimizer(wide.seen)
            self._optimizers.append((weakref.ref(made), own))
            made.register_step_pre_hook(functools.partial(_ask, weakref.ref(self), wide))
            made.register_step_post_hook(functools.partial(_write, wide))
            return made

        return replace(job, loss=loss, optimizer=optimizer)

    def settled(self) -> None:
        """Look no more at optimizers that are made: the trainer is there; all ranks call this.

        Raises:
            RuntimeError: some ranks have an optimizer and others, several, have none.
        """
        self._recording = False
        mine = torch.tensor([float(any(ref() is not None for ref, _ in self._optimizers))], device=self._ctx.device)
        steppers = int(self._ctx.comm.sum(mine))
        self._everyone = steppers == self._ctx.world_size
        if not self._everyone and steppers != 1:
            raise RuntimeError(f"{steppers} of {self._ctx.world_size} ranks have parameters to step; use fewer ranks")

    def begin(self) -> float:
        """Begin a training step; return by what its loss is multiplied."""
        self._stepping, self._decided, self._seen = True, None, 0.0
        return self._scale.value

    def end(self) -> None:
        """End a training step: ranks that had no optimizer learn what was decided."""
        self._stepping = False
        if not self._everyone:
            told = torch.tensor([0.0, float(bool(self._decided))], device=self._ctx.device)
            self._decided = bool(self._ctx.comm.sum(told)[1] > 0)
        if self._decided is not None:  # else no optimizer stepped: gradients are still being added up
            self._scale.update(self._decided)

    def notes(self) -> dict[str, str | int | float]:
        """Return what became of the scale and of gradients."""
        found: dict[str, str | int | float] = {
            "loss_scale": self._scale.value * self._already,
            "skipped_steps": self._scale.overflows,
            "scale_events": ", ".join(f"step {step}: {value:g}" for step, value in self._scale.events) or "none",
        }
        if self._clip is not None:
            found["clipped_steps"] = self._clipped
        if self._zeros:
            found["gradient_zeros_fraction"] = sum(self._zeros) / len(self._zeros)
        return found

    def close(self) -> None:
        """Release the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- before an optimizer steps

    def ask(self, wide: Wide) -> None:
        """Ready the gradients that one optimizer sees, or take them away: then it does nothing."""
        if not self._stepping:
            return
        if self._decided is None:
            self._decided = self._decide()
        wide.read()
        if self._decided:
            wide.drop()
        elif self._factor != 1.0:
            wide.scale(self._factor)

    def _decide(self) -> bool:
        """Return whether this step is to be skipped, the same on all ranks."""
        alive = [own for ref, own in self._optimizers if ref() is not None]
        every = [(p, p.grad) for own in alive for p in own if p.grad is not None]
        grads = [grad for _, grad in every]
        if self._decisions % _COUNTED_EVERY == 0 and grads:
            self._zeros.append(_zeros(grads))
        self._decisions += 1
        square = self._square(every)
        bad = ~(torch.isfinite(square) & torch.isfinite(torch.as_tensor(self._seen, device=square.device)))
        told = torch.stack([square, bad.to(square.dtype)])
        if self._everyone:
            total, wrong = (float(x) for x in self._ctx.comm.sum(told))
        else:
            total, wrong = (float(x) for x in told)
        if wrong > 0 or not math.isfinite(total):
            return True
        norm = math.sqrt(total) / self._scale.value
        shorter = 1.0 if self._clip is None or norm <= self._clip else self._clip / norm
        self._clipped += shorter < 1
        self._factor = shorter / self._scale.value
        return False

    def _square(self, every: Sequence[tuple[nn.Parameter, Tensor]]) -> Tensor:
        """Return the sum of squares of this rank's gradients, so that those of all ranks add up to the whole's.

        What several ranks hold alike counts in parts: the model's own parameters everywhere, cut ones where they are
        replicated; other parameters that an optimizer was given are a shard of this rank's own.
        """
        total = torch.zeros((), device=self._ctx.device)
        for parameter, grad in every:
            local, alike = grad, self._ctx.world_size if self._everyone and id(parameter) in self._whole else 1
            if isinstance(grad, DTensor):
                sizes = zip(grad.placements, grad.device_mesh.shape, strict=True)
                local, alike = grad.to_local(), math.prod(n for place, n in sizes if isinstance(place, Replicate))
            values = local.coalesce().values() if local.is_sparse else local
            total = total + torch.linalg.vector_norm(values, dtype=torch.float32).square() / alike
        return total

    def _look(self, parameter: Tensor) -> None:
        """Remember whether this rank's own gradient is finite: its sum times 0 is 0 only then."""
        grad = parameter.grad
        if self._stepping and grad is not None and not isinstance(grad, DTensor):
            values = grad.coalesce().values() if grad.is_sparse else grad
            self._seen = self._seen + values.sum(dtype=torch.float32) * 0


def _ask(guard: weakref.ref[Guard], wide: Wide, optimizer: object, args: object, kwargs: object) -> None:
    # An optimizer may outlive the trainer: then there is nothing to ask.
    if (found := guard()) is not None:
        found.ask(wide)


def _write(wide: Wide, optimizer: object, args: object, kwargs: object) -> None:
    wide.write()


def _zeros(grads: Sequence[Tensor]) -> float:
    """Return which fraction of the numbers is exactly zero."""
    local = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
    values = [grad.coalesce().values() if grad.is_sparse else grad for grad in local]
    counted = sum(v.numel() for v in values)
    return 1 - sum(int(v.count_nonzero()) for v in values) / counted if counted else 0.0
