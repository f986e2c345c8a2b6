"""A Layout is the memory of all gradients that are exchanged: one pool per type, in which each group is one slice.

plan      group 0: c b[3:]   group 1: b[:3] a
pool      | c | b[3:] | b[:3] | a |          gradients a and c are views of it; b, in two places, is copied back
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from parbench.fusion import Gradient, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan of all gradients of one type.

    Attributes:
        gradients: in the order of the plan's numbers.
        plan: what goes together.
    """

    gradients: Sequence[Gradient]
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Consecutive elements of one gradient in a group.

    Attributes:
        key: the parameter's name, and which elements where these are not all.
        flat: these elements in the pool.
        shaped: the same in the parameter's shape where they are all of it; else `flat`.
    """

    key: str
    flat: Tensor
    shaped: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What one exchange carries.

    Attributes:
        flat: the slice of the pool, one-dimensional.
        parts: of gradients, in order.
        waits_for: names of the gradients in it.
        priority: of the lanes that are ready, the one with the least number goes first, where anything overtakes.
    """

    flat: Tensor
    parts: Sequence[Part]
    waits_for: Sequence[str]
    priority: int = 0

    @property
    def key(self) -> str:
        """The group's name."""
        return f"{self.parts[0].key} to {self.parts[-1].key}"

    def given(self, *, whole: bool) -> list[Tensor]:
        """Return what a compressor is given: the parts in their shapes, or all of it as one."""
        return [self.flat] if whole else [part.shaped for part in self.parts]


@final
class Layout:
    """Where gradients lie.

    Args:
        planned: the plans, one per type.
        parameters: by name.
        order: names of all gradients, in the order in which backward makes them ready.

    Attributes:
        lanes: in the order in which they are exchanged.
        views: name -> the gradient's place, in its parameter's shape, where it lies in one piece.
        places: name -> (first element, elements of the pool), one per piece.
    """

    def __init__(
        self, planned: Sequence[Planned], parameters: Mapping[str, nn.Parameter], order: Sequence[str]
    ) -> None:
        self._made_of = planned, parameters, order
        self.views: dict[str, Tensor] = {}
        self.places: dict[str, list[tuple[int, Tensor]]] = {}
        number = {name: place for place, name in enumerate(order)}
        lanes: list[tuple[int, Lane]] = []
        for one in planned:
            first = parameters[one.gradients[0].name]
            pool = torch.zeros(sum(g.elements for g in one.gradients), dtype=first.dtype, device=first.device)
            latest = 0
            for lane in self._laid_out(one, pool, parameters):
                # Types take turns as their gradients become ready; within one type the plan's order stays.
                latest = max(latest, *(number[name] for name in lane.waits_for))
                lanes.append((latest, lane))
        self.lanes = [lane for _, lane in sorted(lanes, key=lambda pair: pair[0])]

    def empty_copy(self) -> Layout:
        """Return another pool laid out in the same way, full of zeros."""
        return Layout(*self._made_of)

    def gather(self, name: str) -> Tensor:
        """Return a copy of what lies in the places of a gradient, flat."""
        return torch.cat([piece for _, piece in sorted(self.places[name], key=lambda place: place[0])])

    def scatter(self, name: str, flat: Tensor) -> None:
        """Fill the places of a gradient."""
        for start, piece in self.places[name]:
            piece.copy_(flat[start : start + piece.numel()])

    def _laid_out(self, one: Planned, pool: Tensor, parameters: Mapping[str, nn.Parameter]) -> list[Lane]:
        bases: dict[str, set[int]] = {}
        lanes, at = [], 0
        for group in one.plan.groups:
            begins, parts = at, []
            for piece in group.pieces:
                gradient = one.gradients[piece.gradient]
                flat = pool[at : at + piece.stop - piece.start]
                self.places.setdefault(gradient.name, []).append((piece.start, flat))
                bases.setdefault(gradient.name, set()).add(at - piece.start)
                parts.append(_part(gradient, piece.start, piece.stop, flat, parameters[gradient.name]))
                at += flat.numel()
            names = dict.fromkeys(one.gradients[piece.gradient].name for piece in group.pieces)
            lanes.append(Lane(flat=pool[begins:at], parts=parts, waits_for=list(names), priority=group.priority))
        for gradient in one.gradients:
            # Pieces in one row: each as far from the pool's start as from the gradient's.
            if len(bases[gradient.name]) == 1:
                (base,) = bases[gradient.name]
                self.views[gradient.name] = shaped(pool[base : base + gradient.elements], parameters[gradient.name])
        return lanes


def shaped(flat: Tensor, like: Tensor) -> Tensor:
    """Return `flat` in the shape of `like`, with its elements in the same order in memory where that is dense."""
    if like.dim() == 4 and not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last):
        return flat.as_strided(like.size(), like.stride(), flat.storage_offset())
    return flat.view(like.shape)


def _part(gradient: Gradient, start: int, stop: int, flat: Tensor, parameter: nn.Parameter) -> Part:
    if stop - start == gradient.elements:
        return Part(key=gradient.name, flat=flat, shaped=shaped(flat, parameter))
    return Part(key=f"{gradient.name}[{start}:{stop}]", flat=flat, shaped=flat)
