"""Fusion rules: one way to exchange gradients together per file; the class attribute `name` is what users write.

What `__all__` names is for strategies; it is imported when it is asked for, as the plug-ins beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.fusion.bayesian import Bayesian
    from parbench_strategies.fusion.buckets import Buckets
    from parbench_strategies.fusion.lazy import Lazy
    from parbench_strategies.fusion.merged import Merged
    from parbench_strategies.fusion.mgwfbp import MgWfbp
    from parbench_strategies.fusion.per_tensor import PerTensor
    from parbench_strategies.fusion.searched import Searched
    from parbench_strategies.fusion.slices import Slices

__all__ = ["Bayesian", "Buckets", "Lazy", "Merged", "MgWfbp", "PerTensor", "Searched", "Slices"]

_HOMES: Final = {
    "bayesian": ("Bayesian",),
    "buckets": ("Buckets",),
    "lazy": ("Lazy",),
    "merged": ("Merged",),
    "mgwfbp": ("MgWfbp",),
    "per_tensor": ("PerTensor",),
    "searched": ("Searched",),
    "slices": ("Slices",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
