"""Compressors: one way to make gradients smaller per file; the class attribute `name` is what users write.

What `__all__` names is for strategies; it is imported when it is asked for, as the plug-ins beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.compression.fp16 import Fp16
    from parbench_strategies.compression.none import Nothing

__all__ = ["Fp16", "Nothing"]

_HOMES: Final = {"fp16": ("Fp16",), "none": ("Nothing",)}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
