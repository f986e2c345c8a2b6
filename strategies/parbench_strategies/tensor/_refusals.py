"""Refusals say, before any rank starts, why a job cannot be spread so, and which numbers near those given can be."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable

from torch import Tensor, nn

from parbench.api import Job
from parbench_strategies.tensor._plan import KINDS, declared, heads, holders, layers_of, region
from parbench_strategies.tensor._shapes import dry_run
from parbench_strategies.tensor._vocabulary import CutLogits, Part


def refusal(job: Job, world_size: int, degree: int, *, sequence_parallel: bool, loss_parallel: bool) -> str | None:
    """Return a sentence, or None where the job can be spread.

    Args:
        job: its model may be on the meta device.
        world_size: ranks.
        degree: ranks of a tensor group.
        sequence_parallel: whether positions are to be shared out.
        loss_parallel: whether the vocabulary is to be cut.
    """
    if world_size % degree:
        fitting = nearest(degree, (d for d in range(1, world_size + 1) if world_size % d == 0))
        return (
            f"degree x replicas = world size, but {degree} x replicas = {world_size} has no whole solution; "
            f"nearest degrees for {world_size} ranks: {fitting}"
        )
    if degree == 1:
        return None
    problem = _undeclared(job) or _uneven(job, world_size, degree)
    if problem is None and sequence_parallel:
        problem = _unshared(job, degree)
    if problem is None and loss_parallel:
        problem = _uncut(job, degree)
    return problem


def nearest(wanted: int, allowed: Iterable[int]) -> str:
    """Return the allowed numbers next to the wanted one, in words."""
    every = sorted(set(allowed))
    below, above = [x for x in every if x < wanted], [x for x in every if x > wanted]
    return " and ".join(str(x) for x in (*below[-1:], *above[:1])) or "none"


def _undeclared(job: Job) -> str | None:
    kinds = declared(job)
    if unknown := sorted(set(kinds.values()) - set(KINDS)):
        return f"the workload's shardings say {unknown[0]!r}; allowed are {', '.join(KINDS)}"
    layers = layers_of(job, "column", "row")
    if not layers:
        return "tensor parallelism has nothing to cut: the workload declares no shardings that cut a layer"
    for layer in layers:
        module = job.model.get_submodule(layer)
        if not isinstance(module, nn.Linear):
            return f"{layer} is a {type(module).__name__}; tensor parallelism cuts layers of type nn.Linear alone"
        if len(list(holders(job, job.model.get_parameter(f"{layer}.weight")))) > 1:
            return f"{layer} shares its weight with another layer, which cannot be cut along with it"
    return None


def _uneven(job: Job, world_size: int, degree: int) -> str | None:
    pieces = {name: _pieces(job, f"{name}.weight", kind) for name, kind in layers_of(job, "column", "row").items()}
    together = math.gcd(*pieces.values())
    fitting = [d for d in range(1, together + 1) if together % d == 0]
    for name, count in pieces.items():
        if count % degree:
            here = [d for d in fitting if world_size % d == 0 and d > 1]
            also = f" (of {world_size} ranks: {nearest(degree, here)})" if here else ""
            return (
                f"{name}.weight has {count} pieces that must stay whole (heads, or rows), which {degree} ranks cannot "
                f"share equally; nearest degrees that can: {nearest(degree, fitting)}{also}"
            )
    return None


def _pieces(job: Job, name: str, kind: str) -> int:
    """Return into how many pieces the cut dim of a weight may be divided."""
    length = job.model.get_parameter(name).shape[0 if kind == "column" else 1]
    return length // next((size for pattern, size in job.whole.items() if fnmatch.fnmatch(name, pattern)), 1)


def _unshared(job: Job, degree: int) -> str | None:
    kinds = declared(job)
    if "position" not in kinds.values():
        return (
            "sequence_parallel shares out positions between the cut layers, but the workload declares no layer "
            "'position' in its shardings; leave sequence_parallel out"
        )
    blocks, cut = region(job), layers_of(job, "column", "row", "vocabulary")
    if both := [block for block in (blocks[0], blocks[-1]) if block in cut]:
        return f"block {both[0]} is a cut layer itself; sequence_parallel needs blocks that positions enter and leave"
    for block in blocks:
        for name, _ in job.model.get_submodule(block).named_parameters(prefix=block, remove_duplicate=False):
            if name not in kinds and name.rpartition(".")[0] not in cut:
                return (
                    f"{name} lies where sequence_parallel shares out positions, and the workload does not declare it "
                    "'position' in its shardings; leave sequence_parallel out"
                )
    inputs = job.batch(0).inputs
    positions = inputs.shape[1] if inputs.dim() > 1 else 1
    if positions % degree:
        lengths = (positions // degree * degree, -(-positions // degree) * degree)
        fitting = nearest(degree, (d for d in range(1, positions + 1) if positions % d == 0))
        return (
            f"{positions} positions cannot be shared equally by {degree} ranks; nearest degrees that divide them: "
            f"{fitting}; nearest numbers of positions: {nearest(positions, (n for n in lengths if n))}"
        )
    return None


def _uncut(job: Job, degree: int) -> str | None:
    found = heads(job)
    if len(found) != 1:
        return (
            f"loss_parallel cuts the one layer that gives logits, but the workload declares {len(found) or 'no'} layer "
            "'vocabulary' of type nn.Linear in its shardings; leave loss_parallel out"
        )
    weight = job.model.get_parameter(f"{found[0]}.weight")
    if weight.shape[0] < degree:
        return f"a vocabulary of {weight.shape[0]} cannot be cut into {degree} parts; use a smaller degree"
    for name in holders(job, weight):
        module = job.model.get_submodule(name)
        plain = isinstance(module, nn.Embedding) and module.padding_idx is None and module.max_norm is None
        if name != found[0] and not plain:
            return f"{found[0]} shares its weight with {name}, which is no plain nn.Embedding and cannot be cut with it"
    return _loss_problem(job, found[0])


def _loss_problem(job: Job, head: str) -> str | None:
    """Try the loss on logits that claim to be cut, as shapes."""

    def cut(module: nn.Module, inputs: object, logits: Tensor) -> Tensor:
        return CutLogits.of(logits, Part(start=0, size=logits.shape[-1], exchange=lambda x: [x]))

    hook = job.model.get_submodule(head).register_forward_hook(cut)
    try:
        dry_run(job, job.batch(0).cut(0, 1), backward=False)
    except (TypeError, ValueError, RuntimeError) as error:
        return f"loss_parallel cannot compute this workload's loss: {' '.join(str(error).split())[:250]}"
    finally:
        hook.remove()
    return None
