"""Closed forms of tensor parallelism: what a rank sends and holds, from the shapes of the job and its plan.

What crosses edges is counted in a dry run, as often as it crosses: recomputation takes a block's input through it again
but may stop before the last row-cut layer is done, whose sum is not repeated then.

n ranks of a tensor group, r replicas, R row-cut layers, L blocks that have them, B samples of a replica, T positions, D
width, P parameters, b bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.utils.hooks import RemovableHandle

from parbench.api import Batch, Job, Memory, RankContext, Textbook, all_reduced, optimizer_bytes, shared_out
from parbench_strategies.tensor._edges import Edge, Move
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._plan import Plan, layers_of
from parbench_strategies.tensor._shapes import dry_run
from parbench_strategies.tensor._vocabulary import CutLogits, Part


def traffic(job: Job, ctx: RankContext, grid: Grid, plan: Plan) -> dict[str, Fraction]:
    """Return operation -> bytes: what crosses edges in every micro-batch, and gradients once per step."""
    sent = crossed(job, ctx, plan, grid.degree, lambda: dry_step(job, ctx, grid))
    gradients = Fraction(0)
    for name, size in _local_bytes(job, grid, plan, stepped_only=True).items():
        # Parts of the positions are added over all ranks at once, whole gradients averaged over replicas.
        gradients += all_reduced(size, ctx.world_size if name in plan.summed else grid.replicas)
    sent["all_reduce"] = sent.get("all_reduce", Fraction(0)) + gradients
    return {op: size for op, size in sent.items() if size}


def crossed(job: Job, ctx: RankContext, plan: Plan, degree: int, run: Callable[[], None]) -> dict[str, Fraction]:
    """Return operation -> bytes that this rank sends where activations cross the edges of a plan while `run` runs.

    Args:
        job: whole, not cut.
        ctx: this rank.
        plan: for so many ranks.
        degree: ranks of the tensor group.
        run: takes samples forward and backward through the job's model, or a part of it, without values.
    """
    tally = _Tally(degree)
    hooks = _observed(job, ctx, plan, tally)
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return tally.sent


def dry_step(job: Job, ctx: RankContext, grid: Grid) -> None:
    """Take this rank's samples of a step through the model, without values."""
    for part in share(job, grid).micro(ctx.accumulate):
        dry_run(job, part, backward=True)


def share(job: Job, grid: Grid) -> Batch:
    """Return the samples of batch 0 on which this rank's tensor group works."""
    return job.batch(0).share(grid.replica, grid.replicas)


def memory(job: Job, grid: Grid, plan: Plan) -> Memory:
    """Return what a rank holds: its parts of what is cut, everything else whole."""
    kept = _local_bytes(job, grid, plan, stepped_only=False)
    stepped = _local_bytes(job, grid, plan, stepped_only=True)
    sizes = {name: p.element_size() for name, p in job.model.named_parameters()}
    return Memory(
        parameters=sum(kept.values()),
        gradients=sum(stepped.values()),
        optimizer=optimizer_bytes(job, (size // sizes[name] for name, size in stepped.items())),
        buffers=sum(b.numel() * b.element_size() for b in job.model.buffers()),
    )


def textbook(job: Job, ctx: RankContext, grid: Grid, plan: Plan, *, sequence_parallel: bool) -> Textbook:
    """Return Megatron-LM's count; replicas average the gradients of what a rank holds besides."""
    layers = megatron(job, ctx, share(job, grid).samples, grid.degree, sequence_parallel=sequence_parallel)
    held = sum(_local_bytes(job, grid, plan, stepped_only=True).values())
    forms = [layers.formula] if grid.degree > 1 else []
    forms += ["2(r-1)/r P_rank b"] if grid.replicas > 1 else []
    return Textbook(formula=" + ".join(forms) or "0", sent_bytes=layers.sent_bytes + all_reduced(held, grid.replicas))


def megatron(job: Job, ctx: RankContext, samples: int, degree: int, *, sequence_parallel: bool) -> Textbook:
    """Return Megatron-LM's count: each row-cut layer has an all-reduce in forward, its column-cut partner in backward.

    Two of each make a transformer's layer: four all-reduces of B T D in every layer and micro-batch. An all-gather and
    a reduce-scatter send together what the all-reduce does that they replace.
    """
    rows = list(layers_of(job, "row"))
    positions = job.units_per_sample if job.unit == "tokens" else 1
    width = sum(job.model.get_parameter(f"{row}.weight").shape[0] for row in rows)
    whole = samples * positions * width * ctx.dtype.itemsize
    count, per = (4, "L") if _like_transformer(job, rows) else (2, "R")
    exchanges = "all-gather + reduce-scatter pairs" if sequence_parallel else "all-reduces"
    return Textbook(
        formula=f"{count} {per} {exchanges} of B T D: {2 * count}(n-1)/n {per} B T D b",
        sent_bytes=2 * all_reduced(whole, degree),
    )


def _like_transformer(job: Job, rows: Sequence[str]) -> bool:
    """Whether every block that has row-cut layers has two, after attention and after the perceptron."""
    inside = [sum(row.startswith(f"{block}.") for row in rows) for block in job.blocks]
    return set(inside) - {0} == {2}


def _local_bytes(job: Job, grid: Grid, plan: Plan, *, stepped_only: bool) -> dict[str, int]:
    """Return parameter -> bytes of this rank's part of it."""
    found = {}
    for name, p in job.model.named_parameters():
        if stepped_only and (not p.requires_grad or name in job.unused):
            continue
        elements = p.numel()
        if name in plan.cuts:
            start, stop = grid.bounds(p.shape[plan.cuts[name]])
            elements = elements // p.shape[plan.cuts[name]] * (stop - start)
        found[name] = elements * p.element_size()
    return found


@final
class _Tally:
    """Bytes sent by operation."""

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self.sent: dict[str, Fraction] = {}

    def note(self, move: Move, whole: int) -> None:
        """Count one move of a tensor that has `whole` bytes where it is whole."""
        if move in ("keep", "own"):
            return
        sent = all_reduced(whole, self.degree) if move == "all_reduce" else shared_out(whole, self.degree)
        self.sent[move] = self.sent.get(move, Fraction(0)) + sent


def _observed(job: Job, ctx: RankContext, plan: Plan, tally: _Tally) -> list[RemovableHandle]:
    """Put hooks on the model that note what crosses each edge."""

    def crossing(name: str, edge: Edge, x: Tensor) -> Tensor:
        cast = name in plan.layers and ctx.dtype is not torch.float32
        whole = x.numel() * (ctx.dtype.itemsize if cast else x.element_size())
        tally.note(edge.there, whole)
        # A node of its own, as in earnest: where backward is taken in halves, a hook on `x` would be called in both.
        crossed: Tensor = _Noting.apply(x, lambda: tally.note(edge.back, whole))  # type: ignore[no-untyped-call]
        return crossed

    hooks = [
        job.model.get_submodule(name).register_forward_pre_hook(_on_input(name, edge, crossing))
        for name, edge in plan.before.items()
    ]
    hooks += [
        job.model.get_submodule(name).register_forward_hook(_on_output(name, edge, crossing))
        for name, edge in plan.after.items()
    ]
    if plan.logits is not None:
        head = job.model.get_submodule(plan.logits)

        def exchange(parts: Tensor) -> list[Tensor]:
            tally.note("all_gather", parts.numel() * parts.element_size() * tally.degree)
            return [parts]

        def cut(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            return CutLogits.of(output, Part(start=0, size=output.shape[-1], exchange=exchange))

        hooks.append(head.register_forward_hook(cut))
    return hooks


_Crossed = Callable[[str, Edge, Tensor], Tensor]


class _Context(FunctionCtx):
    note: Callable[[], None]


class _Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, note: Callable[[], None]) -> Tensor:
        ctx.note = note
        return x.view_as(x)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        ctx.note()
        return grad, None


def _on_input(name: str, edge: Edge, crossing: _Crossed) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        return crossing(name, edge, inputs[0])

    return hook


def _on_output(name: str, edge: Edge, crossing: _Crossed) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return crossing(name, edge, output)

    return hook
