"""Replicated strategies: every rank holds the whole model and exchanges gradients.

What `__all__` names is for strategies that compose families; it is imported when it is asked for, as the plug-ins
beside it are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parbench_strategies.replicated.replicated import Replicated

__all__ = ["Replicated"]

_HOMES: Final = {"replicated": ("Replicated",)}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
