"""Grouping decides which cases are alive together in one launch: all that differ in strategy and ranks only and fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import msgspec

from parbench.cases import Case
from parbench.spec import RunSpec

# Weights, gradients and two moments of Adam, and as much again for activations, buckets and the allocator.
_COPIES = 2 * 4
# Parity builds one more copy of a case, beside the reference's parameters before and after.
_PARITY_COPIES = _COPIES + 2
_SHARE_OF_MEMORY = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases of one launch.

    Attributes:
        cases: in the order in which they are built.
        because: why these, and only these, are together.
    """

    cases: tuple[Case, ...]
    because: str


def grouped(
    cases: Sequence[Case],
    placed: Callable[[RunSpec], Hashable],
    parameter_bytes: Callable[[RunSpec], int],
    available_bytes: int,
) -> list[Group]:
    """Group cases into launches.

    World sizes may differ: a launch has the ranks of its largest case, and those that a case does not use wait. Not
    so over a network, whose nodes and racks are filled by the number of ranks. Every
    other repeat runs in reverse order (A B, B A), so that slow drift of the machine does not favour one side.

    Args:
        cases: what is to be measured.
        placed: spec -> where its ranks compute and what connects them; only cases of one placement are together.
        parameter_bytes: spec -> bytes of its model's parameters.
        available_bytes: memory of this host that is free now.
    """
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        ranks = 1 if case.spec.network is None else case.spec.world_size
        neutral = msgspec.structs.replace(case.spec, strategy="", world_size=ranks)
        groups.setdefault((case.repeat, neutral, placed(case.spec)), []).append(case)
    found: list[Group] = []
    # Groups keep the order of the suite; the order inside a group that is split is part of the ABBA pattern.
    for members in sorted(groups.values(), key=lambda group: (group[0].repeat, min(c.cell for c in group))):
        ordered = sorted(members, key=lambda c: c.cell, reverse=bool(members[0].repeat % 2))
        found += _split(ordered, parameter_bytes, available_bytes)
    return found


def alone(case: Case, because: str) -> Group:
    """Return a launch that holds one case only."""
    return Group(cases=(case,), because=because)


def _split(ordered: Sequence[Case], parameter_bytes: Callable[[RunSpec], int], available_bytes: int) -> list[Group]:
    if len(ordered) == 1:
        return [alone(ordered[0], "nothing else differs from it in strategy or ranks only")]
    model = parameter_bytes(ordered[0].spec)
    copies = (
        sum(c.spec.world_size * _COPIES for c in ordered) + max(c.spec.world_size for c in ordered) * _PARITY_COPIES
    )
    need, allowed = model * copies, _SHARE_OF_MEMORY * available_bytes
    size = f"about {need / 2**30:.2g} GiB of {available_bytes / 2**30:.3g} GiB free"
    if need <= allowed:
        return [Group(cases=tuple(ordered), because=f"interleaved: all fit into memory together ({size})")]
    return [alone(c, f"launched alone, in ABBA order over repeats: together they need {size}") for c in ordered]
