"""Cost is what a step of the timed loop takes with nothing to train: marks, heartbeat and the probes asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import final

import torch
from torch import Tensor

from parbench.api import Batch, Comm, Probe, RankContext, Trainer
from parbench.clock import clock_for
from parbench.loop import Progress, run_steps

_STEPS, _LOOPS = 100, 3


@final
class _Nothing(Trainer):
    """Trains nothing."""

    def step(self, batch: Batch) -> Tensor | None:
        return None

    def full_parameters(self) -> Mapping[str, Tensor]:
        return {}


def cost_s(ctx: RankContext, progress: Progress, probes: Sequence[Probe]) -> float:
    """Return the seconds per step of an empty loop, the median of three; no other rank is waited for.

    Args:
        ctx: this rank.
        progress: told the number of each step, as in a timed round.
        probes: those of the timed rounds.
    """
    alone = replace(ctx, comm=Comm(None, 0, 1), rank=0, world_size=1)
    batch = Batch(inputs=torch.zeros(1), targets=torch.zeros(1))

    def loop() -> float:
        done = run_steps(
            _Nothing(),
            lambda step: batch,
            alone,
            clock_for(ctx.device),
            first=0,
            count=_STEPS,
            progress=progress,
            fault=lambda step: None,
            probes=probes,
        )
        return done.wall_s / _STEPS

    return median(loop() for _ in range(_LOOPS))
