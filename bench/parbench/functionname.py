"""A function of the user's own is named package.module:function on the command line, and by dots alone elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from parbench.errors import UsageError

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function(named: Path) -> bool:
    """Whether what the command line named is a function, not a file."""
    return _FUNCTION.fullmatch(str(named)) is not None


def function_name(text: str) -> str:
    """Return what a workload given as package.module:function is called: package.module.function.

    Raises:
        UsageError: it is not given so.
    """
    if not _FUNCTION.fullmatch(text):
        raise UsageError(f"--workload takes package.module:function, given {text[:80]!r}; a file: --plugin FILE")
    return text.replace(":", ".")
