"""Closed forms of what the engine sends and keeps, from the plan that it makes before it has seen a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from torch import nn

from parbench.api import Collective, Compressor, Job, RankContext, all_reduced, bytes_of, carriage, planned
from parbench.fusion import FusionRule, Gradient
from parbench_strategies.replicated._members import members
from parbench_strategies.replicated._momentum import momentum_of
from parbench_strategies.replicated._optional import BYTES_OF_A_MARK
from parbench_strategies.replicated._planning import gradient_of


def sent_bytes(
    job: Job,
    ctx: RankContext,
    rule: FusionRule,
    compressor: Compressor,
    collective: Collective,
    *,
    halves: bool = False,
) -> Mapping[str, Fraction] | None:
    """Return what one rank sends in a step, or None where groups follow what is measured and matter.

    A message of two gradients costs as much as two messages only where the collective is proportional and nothing is
    compressed. Groups are those of the model's own order: where backward's is another one, parts may round otherwise.
    """
    if ctx.world_size == 1:
        return {}
    used, optional = members(job)
    measured = rule.needs_profile or rule.needs_link or rule.probes
    if measured and not (collective.proportional and compressor.passes_through):
        return None
    total: dict[str, Fraction] = {}
    cost = carriage(collective, ctx.rank, ctx.world_size, halves=halves)
    for dtype in dict.fromkeys(p.dtype for p in used.values()):
        alike = {name: p for name, p in used.items() if p.dtype is dtype}
        gradients = [gradient_of(name, p, compressor) for name, p in alike.items()]
        for shapes in _groups(rule, gradients, alike, compressor, together=measured):
            sent = compressor.sent(shapes, dtype.itemsize, cost)
            if sent is None:
                return None
            for op, size in sent.items():
                total[op] = total.get(op, Fraction(0)) + size
    if optional:
        marks = all_reduced(BYTES_OF_A_MARK * len(optional), ctx.world_size)
        total["all_reduce"] = total.get("all_reduce", Fraction(0)) + marks
    return total


def _groups(
    rule: FusionRule,
    gradients: Sequence[Gradient],
    parameters: Mapping[str, nn.Parameter],
    compressor: Compressor,
    *,
    together: bool,
) -> Iterator[list[tuple[int, ...]]]:
    """Yield what the compressor is given at a time: shapes of the tensors of one group."""
    if together:
        yield [(sum(one.elements for one in gradients),)]
        return
    element_bytes = parameters[gradients[0].name].element_size()
    for group in planned(rule, gradients, None, element_bytes).groups:
        sizes = [piece.stop - piece.start for piece in group.pieces]
        if compressor.per == "group":
            yield [(sum(sizes),)]
            continue
        whole = [parameters[gradients[piece.gradient].name] for piece in group.pieces]
        yield [tuple(p.shape) if size == p.numel() else (size,) for p, size in zip(whole, sizes, strict=True)]


def kept_bytes(job: Job, ctx: RankContext, compressor: Compressor) -> int:
    """Return what error feedback keeps: rests, and velocities where momentum moves there; each as the gradients."""
    if not compressor.feedback or ctx.world_size == 1:
        return 0
    copies = 2 if compressor.momentum_correction and momentum_of(job) else 1
    return copies * bytes_of(members(job)[0].values())
