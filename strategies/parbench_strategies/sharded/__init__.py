"""Sharded strategies: ranks share parameters, gradients or optimizer state instead of repeating them.

What `__all__` names is for strategies that compose families; it is imported when it is asked for, as the plug-ins
beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.sharded._forms import memory, traffic
    from parbench_strategies.sharded._grid import Grid
    from parbench_strategies.sharded._options import Options
    from parbench_strategies.sharded._trainer import ShardedTrainer, optimizers_of, shard, whole
    from parbench_strategies.sharded._units import owned, units_of

__all__ = [
    "Grid",
    "Options",
    "ShardedTrainer",
    "memory",
    "optimizers_of",
    "owned",
    "shard",
    "traffic",
    "units_of",
    "whole",
]

_HOMES: Final = {
    "_forms": ("memory", "traffic"),
    "_grid": ("Grid",),
    "_options": ("Options",),
    "_trainer": ("ShardedTrainer", "optimizers_of", "shard", "whole"),
    "_units": ("owned", "units_of"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
