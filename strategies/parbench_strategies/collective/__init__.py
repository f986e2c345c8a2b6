"""Collectives: one algorithm that adds a tensor over ranks per file; the class attribute `name` is what users write.

What `__all__` names is for strategies; it is imported when it is asked for, as the plug-ins beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.collective.native import Native
    from parbench_strategies.collective.reduce_scatter_all_gather import ReduceScatterAllGather
    from parbench_strategies.collective.tree import Tree

__all__ = ["Native", "ReduceScatterAllGather", "Tree"]

_HOMES: Final = {
    "native": ("Native",),
    "reduce_scatter_all_gather": ("ReduceScatterAllGather",),
    "tree": ("Tree",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
