"""A Plan says what becomes of each layer of a job under tensor parallelism; it is read off the job's shardings alone.

embedding ──SPLIT─> norm ─GATHER─> column-cut ──> bend ──> row-cut ─SCATTER─> + bias ──> ... ──> norm ─JOIN─> head
                    └──────────────── with sequence parallelism; without, COPY and SUM ────────────┘
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

from torch import nn

from parbench.api import Job
from parbench_strategies.tensor._edges import COPY, GATHER, JOIN, SCATTER, SPLIT, SUM, Edge

KINDS = ("column", "row", "position", "vocabulary")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is cut, what is exchanged where, and which gradients are of a part of the positions only.

    Attributes:
        cuts: parameter -> the dim along which it is cut.
        before: layer or block -> the edge its input crosses.
        after: layer or block -> the edge its output crosses.
        layers: those of them that multiply by a matrix, in the precision of autocast.
        biased: row-cut layers with a bias, which is added once, after the sum.
        lookups: embeddings whose weight is cut along the vocabulary.
        logits: the layer whose output stays cut along the vocabulary, if one does.
        words: its weight's name in the model.
        summed: parameters whose gradients must be added over the tensor group.
    """

    cuts: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, Edge] = field(default_factory=dict)
    after: Mapping[str, Edge] = field(default_factory=dict)
    layers: frozenset[str] = frozenset()
    biased: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    logits: str | None = None
    words: str | None = None
    summed: frozenset[str] = frozenset()


def declared(job: Job) -> dict[str, str]:
    """Return parameter -> kind as the job declares it, shared parameters under each of their names."""
    names = [name for name, _ in job.model.named_parameters(remove_duplicate=False)]
    return {name: kind for pattern, kind in job.shardings.items() for name in fnmatch.filter(names, pattern)}


def layers_of(job: Job, *kinds: str) -> dict[str, str]:
    """Return layer -> kind for those with a matrix of one of these kinds."""
    found = {}
    for name, kind in declared(job).items():
        if kind in kinds and job.model.get_parameter(name).dim() > 1:
            found[name.rpartition(".")[0]] = kind
    return found


def heads(job: Job) -> list[str]:
    """Return the layers that give logits: those that multiply by a matrix of kind "vocabulary"."""
    weights = {id(job.model.get_parameter(name)) for name, kind in declared(job).items() if kind == "vocabulary"}
    return [
        name
        for name, module in job.model.named_modules()
        if isinstance(module, nn.Linear) and id(module.weight) in weights
    ]


def region(job: Job) -> list[str]:
    """Return the blocks, from the first to the last that declares something, between which positions are shared out."""
    names = [name for name, kind in declared(job).items() if kind != "vocabulary"]
    names += [f"{head}.weight" for head in heads(job)]
    held = [k for k, block in enumerate(job.blocks) if any(name.startswith(f"{block}.") for name in names)]
    return list(job.blocks[held[0] : held[-1] + 1]) if held else []


def holders(job: Job, parameter: nn.Parameter) -> Iterator[str]:
    """Yield the modules that hold `parameter` themselves, by name."""
    for name, module in job.model.named_modules():
        if any(p is parameter for p in module.parameters(recurse=False)):
            yield name


def plan_of(job: Job, degree: int, *, sequence_parallel: bool, loss_parallel: bool) -> Plan:
    """Return the plan for a job that `refusal` does not refuse."""
    if degree == 1:
        return Plan()
    cut = layers_of(job, "column", "row")
    head = next(iter(heads(job)), None)
    enter, leave = (GATHER, SCATTER) if sequence_parallel else (COPY, SUM)
    before = {name: enter for name, kind in cut.items() if kind == "column"}
    after = {name: leave for name, kind in cut.items() if kind == "row"}
    biased = tuple(name for name in after if job.model.get_submodule(name).bias is not None)
    logits = head if loss_parallel else None
    lookups: list[str] = []
    if logits is not None:
        before[logits] = enter
        lookups = [name for name in holders(job, job.model.get_parameter(f"{logits}.weight")) if name != logits]
        after |= dict.fromkeys(lookups, SUM)
    if sequence_parallel:
        _share_positions(job, before, after, head)
    return Plan(
        cuts=_cuts(job, cut if logits is None else {**cut, logits: "vocabulary"}),
        before=before,
        after=after,
        layers=frozenset([*cut, *heads(job)]),
        biased=biased,
        lookups=tuple(lookups),
        logits=logits,
        words=None if logits is None else _name(job, job.model.get_parameter(f"{logits}.weight")),
        summed=_partial(job, biased) if sequence_parallel else frozenset(),
    )


def _share_positions(job: Job, before: dict[str, Edge], after: dict[str, Edge], head: str | None) -> None:
    blocks = region(job)
    before[blocks[0]] = SPLIT
    if head is None:
        after[blocks[-1]] = JOIN
    else:
        before.setdefault(head, JOIN)


def _cuts(job: Job, kinds: Mapping[str, str]) -> dict[str, int]:
    dims: dict[str, int] = {}
    for layer, kind in kinds.items():
        module = job.model.get_submodule(layer)
        dims[_name(job, module.get_parameter("weight"))] = 1 if kind == "row" else 0
        if kind != "row" and module.bias is not None:
            dims[_name(job, module.get_parameter("bias"))] = 0
    return dims


def _partial(job: Job, biased: tuple[str, ...]) -> frozenset[str]:
    of_positions = [name for name, kind in declared(job).items() if kind == "position"]
    return frozenset([*of_positions, *(f"{layer}.bias" for layer in biased)])


def _name(job: Job, parameter: nn.Parameter) -> str:
    """Return the name under which the model lists a parameter, the first of those it has."""
    return next(name for name, p in job.model.named_parameters() if p is parameter)
