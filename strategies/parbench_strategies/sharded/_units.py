"""A Unit is what fully sharded training gathers in one message: the parameters of one block, or of several in a row.

    blocks    | embedding | 0 | 1 | 2 | 3 | head |      each unit is gathered where it is needed; what several
    units     |   root    |   a   |   b   | root |      blocks share belongs to the rest of the model, the root

A parameter is cut along its first dim into chunks of equally many rows, the last ones padded; s shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from parbench.api import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Blocks that are gathered together.

    Attributes:
        modules: the blocks, in forward order.
        parameters: what they hold; those without dims, which cannot be cut, left out.
    """

    modules: Sequence[nn.Module]
    parameters: Sequence[nn.Parameter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """All parameters of a model.

    Attributes:
        blocks: units in forward order.
        root: cut parameters that belong to no unit; gathered once, for forward and backward together.
        scalars: parameters without dims, whole on every rank.
    """

    blocks: Sequence[Unit]
    root: Sequence[nn.Parameter]
    scalars: Sequence[nn.Parameter]

    @property
    def cut(self) -> list[nn.Parameter]:
        """Every parameter that is cut, by unit, the root's last."""
        return [*(p for unit in self.blocks for p in unit.parameters), *self.root]


def units_of(job: Job, min_parameters: int) -> Units:
    """Return how the job's parameters are grouped.

    Args:
        job: before it is wrapped; shapes are enough.
        min_parameters: blocks are joined until they hold so many elements; what is left at the end is a unit too.
    """
    units: list[Unit] = []
    modules: list[nn.Module] = []
    parameters: list[nn.Parameter] = []
    for block in _own_blocks(job):
        modules.append(block)
        parameters += [p for p in block.parameters() if p.dim()]
        if sum(p.numel() for p in parameters) >= min_parameters:
            units.append(Unit(modules=modules, parameters=parameters))
            modules, parameters = [], []
    if modules:
        units.append(Unit(modules=modules, parameters=parameters))
    taken = {id(p) for unit in units for p in unit.parameters}
    everything = list(job.model.parameters())
    return Units(
        blocks=units,
        root=[p for p in everything if p.dim() and id(p) not in taken],
        scalars=[p for p in everything if not p.dim()],
    )


def _own_blocks(job: Job) -> list[nn.Module]:
    """Return the blocks that share no parameter with another, and have one to cut."""
    blocks = [job.model.get_submodule(name) for name in job.blocks]
    holders: dict[int, int] = {}
    for block in blocks:
        for parameter in block.parameters():
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    owned = [b for b in blocks if any(p.dim() for p in b.parameters())]
    return [b for b in owned if all(holders[id(p)] == 1 for p in b.parameters())]


def chunk(parameter: nn.Parameter, shards: int) -> int:
    """Return the elements of one rank's chunk, padding included: rows rounded up, times what a row holds."""
    return -(-parameter.shape[0] // shards) * _row(parameter)


def owned(parameter: nn.Parameter, shards: int, shard: int) -> int:
    """Return the elements of chunk number `shard` without padding: the last chunks may be short, or empty."""
    rows = -(-parameter.shape[0] // shards)
    return min(rows, max(0, parameter.shape[0] - shard * rows)) * _row(parameter)


def _row(parameter: nn.Parameter) -> int:
    return parameter.numel() // max(1, parameter.shape[0])
