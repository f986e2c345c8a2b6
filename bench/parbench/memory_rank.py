"""Memory of one rank that holds one variant alone: what it had before, the most in each phase, what that is made of.

before | build | first step | forward, backward, optimizer of later steps | one step whose storages are followed
^ base           ^ warm-up      ^ the peak that counts                       ^ parts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from parbench.api import Batch, Job, Trainer
from parbench.holding import Holding, Memory, state_of
from parbench.live_bytes import LiveBytes
from parbench.memory_gauge import Gauge, gauge_of
from parbench.observed import Weighed

_STEPS = 2  # steady steps; the first allocates what later ones find


@final
class MemoryRank:
    """Weighs the one variant of a rank; `begin` before it is built, `marked` while it is, `weigh` after.

    Args:
        device: where the rank computes.
    """

    def __init__(self, device: torch.device) -> None:
        found = gauge_of(device)
        self._gauge: Gauge | None = None if isinstance(found, str) else found
        self.reason = found if isinstance(found, str) else None
        self._device = device
        self._base = 0
        self._phases: dict[str, int] = {}
        self._losses = 0
        self._marking = False

    def begin(self) -> None:
        """Take what is held before anything is built as the base."""
        if self._gauge is not None:
            self._gauge.settle()
            self._base = self._gauge.held_bytes()
            self._gauge.reset()

    def marked(self, job: Job) -> Job:
        """Return `job` with a loss that marks the end of forward."""

        def loss(outputs: Tensor, batch: Batch) -> Tensor:
            found = job.loss(outputs, batch)
            self._losses += 1
            self._mark("forward")
            return found

        return replace(job, loss=loss)

    def weigh(self, trainer: Trainer, batch: Callable[[int], Batch], period: int, closed: Memory | None) -> Weighed:
        """Take steps and return what they needed; the trainer must be fresh."""
        gauge = self._gauge
        if gauge is None:
            return Weighed(reason=self.reason)
        self._phases = {"build": gauge.peak_bytes() - self._base}
        gauge.reset()
        first = range(period)
        _take(trainer, batch, first)
        self._phases["first step"] = with_warm_up = gauge.peak_bytes() - self._base
        gauge.reset()
        peak = self._steady(gauge, trainer, batch, range(period, period * (1 + _STEPS)))
        settled = gauge.held_bytes() - self._base
        holding = trainer.holding()
        with LiveBytes(_kinds(holding)) as live:
            _take(trainer, batch, range(period * (1 + _STEPS), period * (2 + _STEPS)))
        return Weighed(
            base_bytes=self._base,
            peak_bytes=peak,
            first_peak_bytes=with_warm_up,
            between_steps_bytes=settled,
            phases=self._phases,
            at_peak=live.at_peak(),
            held={} if holding is None else holding.bytes_of(),
            predicted=None if closed is None else {name: int(getattr(closed, name)) for name in _STATES},
            facts=gauge.facts(),
            source=gauge.source,
        )

    def _steady(self, gauge: Gauge, trainer: Trainer, batch: Callable[[int], Batch], steps: Iterable[int]) -> int:
        """Take steps and return the most they held; note it by phase."""
        self._losses, self._marking = 0, True
        hooks = [
            register_optimizer_step_pre_hook(lambda *_: self._mark("backward")),
            register_optimizer_step_post_hook(lambda *_: self._mark("optimizer")),
        ]
        taken = list(steps)
        try:
            _take(trainer, batch, taken)
        finally:
            self._marking = False
            for hook in hooks:
                hook.remove()
        self._note("rest")
        peak = max(self._phases.pop(name) for name in ("rest",) if name in self._phases)
        peak = max(peak, *(self._phases.get(name, 0) for name in ("forward", "backward", "optimizer")))
        if self._losses > len(taken):
            # Several micro-batches: forward of one and backward of another cannot be told apart by these marks.
            both = [self._phases.pop(name) for name in ("forward", "backward") if name in self._phases]
            self._phases["forward and backward"] = max(both)
        return peak

    def _mark(self, phase: str) -> None:
        if self._marking:
            self._note(phase)

    def _note(self, phase: str) -> None:
        if self._gauge is not None:
            self._phases[phase] = max(self._phases.get(phase, 0), self._gauge.peak_bytes() - self._base)
            self._gauge.reset()


_STATES = ("parameters", "gradients", "optimizer", "buffers")


def _take(trainer: Trainer, batch: Callable[[int], Batch], steps: Iterable[int]) -> None:
    for step in steps:
        trainer.step(batch(step))
    trainer.drain()


def _kinds(holding: Holding | None) -> Mapping[str, Iterable[Tensor]]:
    if holding is None:
        return {}
    return {
        "parameters": holding.parameters,
        "optimizer": state_of(holding.optimizers),
        "buffers": holding.buffers,
    }
