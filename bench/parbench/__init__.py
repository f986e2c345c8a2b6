"""parbench compares ways of parallelising training: which wins on this hardware, by how much, and why."""

from __future__ import annotations

import importlib

# Public name -> module that defines it; imported on first use, so that `import parbench` stays light and torch-free.
_PUBLIC = {
    "Agreement": "parbench.record",
    "Environment": "parbench.record",
    "Metric": "parbench.record",
    "MissingError": "parbench.errors",
    "ParbenchError": "parbench.errors",
    "RankFailed": "parbench.errors",
    "RunRecord": "parbench.record",
    "RunSpec": "parbench.spec",
    "Session": "parbench.session",
    "StoreError": "parbench.errors",
    "Stuck": "parbench.errors",
    "UnreadableError": "parbench.errors",
    "UsageError": "parbench.errors",
    "load": "parbench.frames",
    "run": "parbench.sweep",
}

__all__ = sorted(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'parbench' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
