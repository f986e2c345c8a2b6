"""A function that builds a Job is a workload of the user's own, named on the command line: package.module:function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import torch

from parbench.api import Job, Workload
from parbench.errors import MissingError, UsageError

Build = Callable[[str, int, torch.device, int], Job]

_SIZES = ("smoke", "small")
_BATCH = 32


def workload_class(module: str, name: str) -> type[Workload]:
    """Return the workload whose jobs a function builds.

    Args:
        module: imported now; the folder in which the command was given is looked into last.
        name: of a function (size, seed, device, global_batch_size) -> Job. Its attributes `sizes` (names),
            `default_batch_size` and `unit` replace "smoke" and "small", 32, and "samples".

    Raises:
        MissingError: there is no such module.
        UsageError: the module is broken, has no such function, or the function's attributes are of other types.
    """
    function: object = getattr(_imported(module, name), name, None)
    if not callable(function):
        raise UsageError(f"{module} has no function {name!r}; give --workload package.module:function")
    listed: object = getattr(function, "sizes", _SIZES)
    batch: object = getattr(function, "default_batch_size", _BATCH)
    unit: object = getattr(function, "unit", "samples")
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed) or not listed:
        raise UsageError(f"{module}:{name} has sizes = {listed!r}; it is a list of names, such as ('smoke', 'small')")
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"{module}:{name} has default_batch_size = {batch!r}; it is a whole number, at least 1")
    if unit not in ("samples", "tokens"):
        raise UsageError(f"{module}:{name} has unit = {unit!r}; it is 'samples' or 'tokens', as its jobs say")
    return _made(module, name, function, tuple(map(str, listed)), batch, str(unit))


def _imported(module: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingError(f"--workload {module}:{name} needs {error.name}, which is not found; install it") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, and breaks only itself
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise UsageError(f"--workload {module}:{name}: importing {module} raised {what}; mend it") from error


def _made(module: str, name: str, build: Build, names: tuple[str, ...], batch_size: int, counts: str) -> type[Workload]:
    class Function(Workload):
        """Jobs of a function."""

        unit: ClassVar[str] = counts
        sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {size: {} for size in names}
        source: ClassVar[str] = f"the function {name} of {module}"

        def default_batch_size(self, size: str) -> int:
            return batch_size

        def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
            job: object = build(size, seed, device, global_batch_size)
            if not isinstance(job, Job):
                raise UsageError(f"{module}:{name} gave a {type(job).__name__}; it must return a parbench.api.Job")
            return job

    return Function
