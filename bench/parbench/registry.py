"""The Registry maps names to classes, per kind: the folder is the registry, entry points and named files add to it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, overload

import msgspec

from parbench import bind
from parbench.collective import Collective
from parbench.compressor import Compressor
from parbench.discover import PLACES, Found, Kind, checked_plugin, discover, first_line
from parbench.errors import MissingError, ParbenchError, UsageError, unknown_name
from parbench.fusion import FusionRule
from parbench.grammar import Call, parse
from parbench.paper import Paper
from parbench.point import Point
from parbench.schedule import Schedule
from parbench.spec import RunSpec

if TYPE_CHECKING:
    from parbench.api import Probe, Strategy, Workload

# Arguments annotated with one of these are plug-ins themselves; to import any of them takes no torch.
_NESTED: Mapping[object, Kind] = {
    Schedule: "schedule",
    FusionRule: "fusion",
    Collective: "collective",
    Compressor: "compressor",
}

TORCH_MISSING = "training needs torch, which is not installed; run: pip install 'parbench[run]'"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What `parbench list` says about one plug-in.

    Attributes:
        name: what the user writes.
        summary: the first line of its module, which defines it.
        arguments: its constructor's arguments, as `name=default`.
        paper_title: where the idea comes from.
        paper_url: where to read it.
        point: where a system lies in the space of replicated strategies; None for what is no such system.
        sizes: a workload's sizes.
        source: where a workload's model and data come from.
        origin: the file or entry point that defines it.
        broken_reason: why it cannot be used, else None.
        note: why less than usual is known about it, else None.
    """

    name: str
    summary: str
    arguments: tuple[str, ...] = ()
    paper_title: str = ""
    paper_url: str = ""
    point: Point | None = None
    sizes: tuple[str, ...] = ()
    source: str = ""
    origin: str
    broken_reason: str | None = None
    note: str | None = None


class Registry:
    """Looks plug-ins up by name and imports only the one asked for.

    Args:
        plugins: files named on the command line (`--plugin FILE`), each one more strategy or workload.

    Raises:
        UsageError: a file of `plugins` is not a Python file.
    """

    def __init__(self, plugins: Sequence[Path] = ()) -> None:
        self.plugins = tuple(dict.fromkeys(checked_plugin(path) for path in plugins))
        self._found: dict[Kind, dict[str, list[Found]]] = {}
        self._classes: dict[tuple[Kind, str], type] = {}

    def names(self, kind: Kind) -> list[str]:
        """Return all names of a kind, in alphabetical order; nothing is imported."""
        return list(self._all(kind))

    @overload
    def resolve(self, kind: Literal["strategy"], what: str | Call) -> Strategy: ...

    @overload
    def resolve(self, kind: Literal["workload"], what: str | Call) -> Workload: ...

    @overload
    def resolve(self, kind: Literal["probe"], what: str | Call) -> Probe: ...

    @overload
    def resolve(self, kind: Literal["schedule"], what: str | Call) -> Schedule: ...

    @overload
    def resolve(self, kind: Literal["fusion"], what: str | Call) -> FusionRule: ...

    @overload
    def resolve(self, kind: Literal["collective"], what: str | Call) -> Collective: ...

    @overload
    def resolve(self, kind: Literal["compressor"], what: str | Call) -> Compressor: ...

    def resolve(self, kind: Kind, what: str | Call) -> object:
        """Return the instance that a text such as `ddp(bucket_cap_mb=1)` means.

        Raises:
            UsageError: no such name or argument, or its constructor refuses.
            MissingError: torch or another package it imports is missing.
        """
        call = self._call(kind, what)
        return bind.construct(self.load(kind, call.name), call, _Nested(self))

    def canonical(self, kind: Kind, what: str | Call) -> str:
        """Return the one spelling that all texts of the same meaning share.

        Raises:
            UsageError: no such name or argument.
            MissingError: torch or another package it imports is missing.
        """
        call = self._call(kind, what)
        return bind.canonical(self.load(kind, call.name), call, _Nested(self))

    def load(self, kind: Kind, name: str) -> type:
        """Return the class behind `name`, imported now.

        Raises:
            UsageError: the name is unknown, taken twice, or its file is broken.
            MissingError: torch or another package it imports is missing.
        """
        known = self._classes.get((kind, name))
        if known is not None:
            return known
        cls = _load(kind, self._one(kind, name))
        self._classes[kind, name] = cls
        return cls

    def check_names(self, specs: Sequence[RunSpec]) -> None:
        """Make sure that every strategy, workload and probe of `specs` exists; nothing is imported.

        Raises:
            UsageError: one does not, is taken twice, or cannot be parsed.
        """
        for spec in specs:
            named: list[tuple[Kind, str]] = [("strategy", spec.strategy), ("workload", spec.workload)]
            for kind, text in (*named, *(("probe", probe) for probe in spec.probes)):
                self._one(kind, self._call(kind, text).name)

    def describe(self, kind: Kind) -> list[Entry]:
        """Return what is known about every plug-in of a kind; broken ones say why and break nothing else."""
        return [self._entry(kind, name) for name in self.names(kind)]

    def _all(self, kind: Kind) -> dict[str, list[Found]]:
        if kind not in self._found:
            self._found[kind] = discover(kind, self.plugins)
        return self._found[kind]

    def _call(self, kind: Kind, what: str | Call) -> Call:
        if isinstance(what, Call):
            return self._expanded(kind, what)
        try:
            return self._expanded(kind, parse(what))
        except UsageError as error:
            known = f"known: {', '.join(self.names(kind)) or 'none'} (parbench list {PLACES[kind].plural})"
            raise UsageError(f"no {kind} is written {what[:80]!r}; {known}\n{error}") from error

    def _expanded(self, kind: Kind, call: Call) -> Call:
        """Return what a compressor alone stands for where a strategy is asked for: the engine with it."""
        if kind != "strategy" or call.name in self._all("strategy") or call.name not in self._all("compressor"):
            return call
        return Call("replicated", (), {"compressor": call})

    def _one(self, kind: Kind, name: str) -> Found:
        candidates = self._all(kind).get(name, [])
        if not candidates:
            advice = f"parbench list {PLACES[kind].plural}; one from your own file, in a record too: --plugin FILE"
            advice += ", or --workload package.module:function" if kind == "workload" else ""
            also = self.names("compressor") if kind == "strategy" else []
            raise unknown_name(kind, name, [*self.names(kind), *also], advice)
        if len(candidates) > 1:
            places = " and ".join(one.origin for one in candidates)
            raise UsageError(
                f"{len(candidates)} {PLACES[kind].plural} are named {name!r}: {places}; rename one of them"
            )
        return candidates[0]

    def _entry(self, kind: Kind, name: str) -> Entry:
        found = self._all(kind)[name][0]
        summary = first_line(found.file)
        try:
            cls = self.load(kind, name)
        except MissingError as error:
            if not _torch_missing():
                return Entry(name=name, summary=summary, origin=found.origin, broken_reason=str(error))
            return Entry(name=name, summary=summary, origin=found.origin, note=str(error))
        except ParbenchError as error:
            return Entry(name=name, summary=summary, origin=found.origin, broken_reason=str(error))
        return _described(kind, found, cls)


class _Nested:
    """Arguments of plug-ins that are plug-ins, known by their annotation."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def takes(self, hint: object) -> bool:
        return _nested_kind(hint) is not None

    def made(self, hint: object, value: str | Call) -> object:
        return self._registry.resolve(self._kind(hint), value)

    def spelled(self, hint: object, value: str | Call) -> str:
        return self._registry.canonical(self._kind(hint), value)

    def _kind(self, hint: object) -> Kind:
        found = _nested_kind(hint)
        if found is None:
            raise TypeError(f"{hint} is no plug-in")
        return found


def _nested_kind(hint: object) -> Kind | None:
    """Return what kind of plug-in an annotation means, such as `Compressor` or `Strategy | None`."""
    if isinstance(hint, types.UnionType):
        return next(filter(None, map(_nested_kind, hint.__args__)), None)
    if not isinstance(hint, type):
        return None
    # A strategy is known by name: to import its class takes torch, which is there where such an annotation is.
    strategy = (hint.__module__, hint.__qualname__) == ("parbench.api", "Strategy")
    return "strategy" if strategy else _NESTED.get(hint)


def _described(kind: Kind, found: Found, cls: type) -> Entry:
    module_doc = inspect.getdoc(sys.modules[cls.__module__]) or inspect.getdoc(cls) or ""
    paper: object = getattr(cls, "paper", None)
    point: object = getattr(cls, "point", None)
    entry = Entry(
        name=found.name,
        summary=module_doc.partition("\n")[0],
        arguments=bind.arguments(cls),
        paper_title=paper.title if isinstance(paper, Paper) else "",
        paper_url=paper.url if isinstance(paper, Paper) else "",
        point=point if isinstance(point, Point) else None,
        origin=found.origin,
    )
    if kind != "workload":
        return entry
    from parbench.api import Workload

    if issubclass(cls, Workload):
        return msgspec.structs.replace(entry, sizes=tuple(cls.sizes), source=cls.source)
    return entry


def _torch_missing() -> bool:
    return importlib.util.find_spec("torch") is None


def _load(kind: Kind, found: Found) -> type:
    if PLACES[kind].torch and _torch_missing():
        raise MissingError(TORCH_MISSING)
    if found.function:
        from parbench.function_workload import workload_class

        return workload_class(found.module, found.attribute or "")
    module = _imported(kind, found)
    cls = _only_class(kind, found, module)
    lacking = [name for name in PLACES[kind].needs if getattr(cls, name, None) is None]
    if lacking:
        raise UsageError(f"{kind} {found.name!r} ({found.origin}): {cls.__name__} sets no {', '.join(lacking)}; add it")
    return cls


def _imported(kind: Kind, found: Found) -> ModuleType:
    try:
        return _from_file(found) if found.by_path else importlib.import_module(found.module)
    except ModuleNotFoundError as error:
        lacking = error.name or "a module"
        raise MissingError(
            f"{kind} {found.name!r} needs {lacking}, which is not installed ({found.origin}); install it"
        ) from error
    except (Exception, SystemExit) as error:  # a plug-in's file may raise anything, and breaks only itself
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise UsageError(f"{kind} {found.name!r} is broken: importing {found.origin} raised {what}; mend it") from error


def _from_file(found: Found) -> ModuleType:
    if found.module in sys.modules:
        return sys.modules[found.module]
    spec = importlib.util.spec_from_file_location(found.module, found.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{found.file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[found.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[found.module]
        raise
    return module


def _only_class(kind: Kind, found: Found, module: ModuleType) -> type:
    place = PLACES[kind]
    base: object = getattr(importlib.import_module(place.contract), place.base)
    if not isinstance(base, type):
        raise TypeError(f"{place.contract}.{place.base} is not a class")
    defined = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and issubclass(cls, base)
        and not inspect.isabstract(cls)
        and cls.__module__ == module.__name__
    ]
    named = [cls for cls in defined if found.attribute in (None, cls.__name__)]
    if len(named) != 1:
        listed = ", ".join(cls.__name__ for cls in named) or "none"
        raise UsageError(
            f"{kind} {found.name!r} is broken: {found.origin} must define exactly one class that extends "
            f"{place.base} and has all its methods; it defines {listed}"
        )
    return named[0]
