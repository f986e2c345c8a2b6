"""Tensor-parallel strategies: every rank of a group computes a part of each layer, for the same samples.

What `__all__` names is for strategies that compose families; it is imported when it is asked for, as the plug-ins
beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.tensor._closed import crossed, dry_step, megatron, traffic
    from parbench_strategies.tensor._grid import Grid
    from parbench_strategies.tensor._layers import CutLayers, own_name
    from parbench_strategies.tensor._plan import Plan, plan_of, region
    from parbench_strategies.tensor._refusals import refusal
    from parbench_strategies.tensor._shapes import cut_shapes, without_values
    from parbench_strategies.tensor._trainer import TensorsTrainer

__all__ = [
    "CutLayers",
    "Grid",
    "Plan",
    "TensorsTrainer",
    "crossed",
    "cut_shapes",
    "dry_step",
    "megatron",
    "own_name",
    "plan_of",
    "refusal",
    "region",
    "traffic",
    "without_values",
]

_HOMES: Final = {
    "_closed": ("crossed", "dry_step", "megatron", "traffic"),
    "_grid": ("Grid",),
    "_layers": ("CutLayers", "own_name"),
    "_plan": ("Plan", "plan_of", "region"),
    "_refusals": ("refusal",),
    "_shapes": ("cut_shapes", "without_values"),
    "_trainer": ("TensorsTrainer",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
