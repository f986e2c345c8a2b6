"""Pipelined strategies: every rank holds some layers, and micro-batches pass from rank to rank.

What `__all__` names is for strategies that compose families; it is imported when it is asked for: the schedules in this
package are read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.pipelined._boundaries import Boundary, boundaries
    from parbench_strategies.pipelined._closed import added, averaged, memory, passed
    from parbench_strategies.pipelined._cutting import Cutting
    from parbench_strategies.pipelined._grid import Grid
    from parbench_strategies.pipelined._layers import Layers
    from parbench_strategies.pipelined._peers import Peers
    from parbench_strategies.pipelined._rehearsal import indivisible, rehearse
    from parbench_strategies.pipelined._replicas import Replicas
    from parbench_strategies.pipelined._stages import Layout, Stage, stages_of
    from parbench_strategies.pipelined._trainer import PipelineTrainer, local_gradient
    from parbench_strategies.pipelined._weights import Split
    from parbench_strategies.pipelined.schedules.one_f_one_b import OneForwardOneBackward

__all__ = [
    "Boundary",
    "Cutting",
    "Grid",
    "Layers",
    "Layout",
    "OneForwardOneBackward",
    "Peers",
    "PipelineTrainer",
    "Replicas",
    "Split",
    "Stage",
    "added",
    "averaged",
    "boundaries",
    "indivisible",
    "local_gradient",
    "memory",
    "passed",
    "rehearse",
    "stages_of",
]

_HOMES: Final = {
    "_boundaries": ("Boundary", "boundaries"),
    "_closed": ("added", "averaged", "memory", "passed"),
    "_cutting": ("Cutting",),
    "_grid": ("Grid",),
    "_layers": ("Layers",),
    "_peers": ("Peers",),
    "_rehearsal": ("indivisible", "rehearse"),
    "_replicas": ("Replicas",),
    "_stages": ("Layout", "Stage", "stages_of"),
    "_trainer": ("PipelineTrainer", "local_gradient"),
    "_weights": ("Split",),
    "schedules.one_f_one_b": ("OneForwardOneBackward",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
