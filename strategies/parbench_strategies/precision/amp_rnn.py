"""amp_rnn: mixed precision around a strategy: types of weights and messages, a loss scale, clipping, a learning rate.

weights      fp32, computed in --precision under autocast         or half: weights, results and gradients alike
messages     those of the strategy inside: fp16 unless told otherwise
loss scale   fp16: found while training, or fixed                 a step that overflows is skipped on all ranks
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Final, Literal, final

import torch
from torch import Tensor

from parbench.api import Agrees, Batch, Holding, Job, Memory, Paper, RankContext, Strategy, Textbook, Trainer
from parbench_strategies.compression import Fp16
from parbench_strategies.precision import _rate
from parbench_strategies.precision._guard import Guard, sent_bytes
from parbench_strategies.precision._scale import Scale
from parbench_strategies.replicated import Replicated

Weights = Literal["fp32", "fp16", "bf16"]
Scaling = Literal["auto", "dynamic", "static", "none"]
Rate = Literal["same", "replicas"]

_TYPES: Final[Mapping[Weights, torch.dtype]] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_STATIC: Final = 1024.0
# GradScaler of torch begins there too; --precision fp16 has scaled the loss by a part of it already.
_DYNAMIC: Final = 65536.0
_CUT = ("layers", "positions")


@final
class AmpRnn(Strategy):
    """Trains in mixed precision, made for recurrent networks, around any strategy whose ranks compute whole samples.

    Args:
        strategy: spreads the job and decides what is sent: `ddp`, `fsdp`, `replicated(compressor=bf16)`, `topk`; by
            default gradients are averaged in half precision, as in the paper.
        weights: type of the weights, and with it of all that is computed; "fp32" weights compute in --precision.
        scale: of the loss: "dynamic", "static" (1,024), "none", or "auto": dynamic for --precision fp16, static for
            weights of fp16, else none.
        clip: largest norm of all gradients together.
        learning_rate: the "same" as one process has, or that of so many "replicas": n / (1 + n/100) times as much.
    """

    paper = Paper(
        "Training distributed deep recurrent neural networks with mixed precision on GPU clusters (Svyatkovskiy et "
        "al., 2017)",
        "https://doi.org/10.1145/3146347.3146358",
    )
    agrees: Agrees = "on average"

    def __init__(
        self,
        strategy: Strategy | None = None,
        weights: Weights = "fp32",
        scale: Scaling = "auto",
        clip: float | None = None,
        learning_rate: Rate = "same",
    ) -> None:
        inner: Strategy = Replicated(compressor=Fp16()) if strategy is None else strategy
        if isinstance(inner, AmpRnn):
            raise ValueError("strategy must be one that spreads the job, got another amp_rnn")
        if clip is not None and not 0 < clip < 1e30:
            raise ValueError(f"clip must be above 0, got {clip}")
        self.inner = inner
        self.weights = weights
        self.scale = scale
        self.clip = clip
        self.learning_rate = learning_rate
        self.ranks = inner.ranks
        self.repeats = inner.repeats
        self.shards = inner.shards
        self.takes_sparse = inner.takes_sparse
        self.consumes_model = inner.consumes_model or weights != "fp32"
        if clip is not None or learning_rate != "same" or inner.agrees == "differently":
            self.agrees = "differently"

    @property
    def period(self) -> int:
        """That of the strategy inside."""
        return self.inner.period

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """That of the strategy inside."""
        return self.inner.mesh(world_size)

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Ask the strategy inside; one whose ranks hold parts of layers does not go with this."""
        if cut := [what for what in self.inner.shards if what in _CUT]:
            return (
                f"amp_rnn needs ranks that compute whole samples, and this strategy shares out {cut[0]}; use ddp, "
                "replicated, fsdp or another of those families inside"
            )
        if not self.inner.steps_together:
            return (
                "amp_rnn decides before the optimizer's step, for all ranks, whether gradients are sound, and this "
                "strategy steps later, by layer or on some ranks only; use ddp, replicated or fsdp inside"
            )
        return self.inner.impossible(job, world_size)

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Say so where two types are asked for; else ask the strategy inside."""
        if self.weights != "fp32" and ctx.dtype is not torch.float32:
            return (
                f"weights of {self.weights} compute in {self.weights}, and --precision asks for another type of "
                "arithmetic under autocast; leave one of both out"
            )
        return self.inner.unsupported(self._typed(job), ctx)

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """What the strategy inside sends for weights of this type, and two numbers where steps may be skipped."""
        inner = self.inner.traffic(self._typed(job), ctx)
        if inner is None or not self._guards(ctx) or ctx.world_size == 1:
            return inner
        return {**inner, "all_reduce": inner.get("all_reduce", Fraction(0)) + sent_bytes(ctx.world_size, self.period)}

    def textbook(self, job: Job, ctx: RankContext) -> Textbook | None:
        """That of the strategy inside."""
        return self.inner.textbook(self._typed(job), ctx)

    def memory(self, job: Job, ctx: RankContext) -> Memory | None:
        """That of the strategy inside; none for half weights, of which the optimizer has copies."""
        return self.inner.memory(job, ctx) if self.weights == "fp32" else None

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Convert the weights, put the guard before the optimizer and let the strategy inside spread the job."""
        job.model.to(_TYPES[self.weights]) if self.weights != "fp32" else None
        if self.learning_rate == "replicas":
            job = _rate.with_grown_rate(job, ctx.world_size)
        if not self._guards(ctx):
            return _AmpTrainer(self.inner.wrap(job, ctx), None, _TYPES[self.weights])
        guard = Guard(job, ctx, self._first_scale(job, ctx), self.clip)
        inner = self.inner.wrap(guard.guarded(job), ctx)
        guard.settled()
        return _AmpTrainer(inner, guard, _TYPES[self.weights])

    def _guards(self, ctx: RankContext) -> bool:
        return self.weights != "fp32" or self.clip is not None or self._scaling(ctx) != "none"

    def _scaling(self, ctx: RankContext) -> Scaling:
        if self.scale != "auto":
            return self.scale
        if self.weights == "fp16":
            return "static"
        return "dynamic" if ctx.dtype is torch.float16 else "none"

    def _first_scale(self, job: Job, ctx: RankContext) -> Scale:
        kind = self._scaling(ctx)
        first = {"dynamic": _DYNAMIC, "static": _STATIC}.get(kind, job.loss_scale)
        return Scale(max(1.0, first / job.loss_scale), dynamic=kind == "dynamic")

    def _typed(self, job: Job) -> Job:
        """Return `job` with a copy of its model that has weights of this type; for closed forms, of shapes."""
        if self.weights == "fp32":
            return job
        return replace(job, model=copy.deepcopy(job.model).to(_TYPES[self.weights]))


@final
class _AmpTrainer(Trainer):
    def __init__(self, inner: Trainer, guard: Guard | None, weights: torch.dtype) -> None:
        self._inner = inner
        self._guard = guard
        self._weights = weights
        self._steps = 0
        self._spent_s = 0.0

    def step(self, batch: Batch) -> Tensor | None:
        if self._weights is not torch.float32 and batch.inputs.is_floating_point():
            batch = Batch(inputs=batch.inputs.to(self._weights), targets=batch.targets)
        started_s = time.perf_counter()
        scale = self._guard.begin() if self._guard is not None else 1.0
        loss = self._inner.step(batch)
        if self._guard is not None:
            self._guard.end()
        self._steps += 1
        self._spent_s += time.perf_counter() - started_s
        return loss if loss is None or scale == 1.0 else loss / scale

    def drain(self) -> None:
        self._inner.drain()

    def left_out(self) -> int:
        return self._inner.left_out()

    def full_parameters(self) -> Mapping[str, Tensor]:
        return self._inner.full_parameters()

    def full_buffers(self) -> Mapping[str, Tensor]:
        return self._inner.full_buffers()

    def holding(self) -> Holding | None:
        return self._inner.holding()

    def notes(self) -> Mapping[str, str | int | float]:
        """Return those of the strategy inside, what became of scale and gradients, and the two shares of a step."""
        found = dict(self._inner.notes())
        if self._guard is not None:
            found |= self._guard.notes()
        waited_s = found.get("exposed_s")
        if isinstance(waited_s, float) and self._spent_s > 0:
            share = min(1.0, waited_s * self._steps / self._spent_s)
            found |= {"synchronisation_share": share, "calculation_share": 1 - share}
        return found

    def close(self) -> None:
        self._inner.close()
        if self._guard is not None:
            self._guard.close()
