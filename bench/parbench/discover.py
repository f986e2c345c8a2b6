"""A Found plug-in is a name and where its class is defined, known from its file: listing imports nothing."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from parbench.errors import UsageError
from parbench.functionname import function_name, is_function

Kind = Literal["strategy", "workload", "probe", "schedule", "fusion", "collective", "compressor"]

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the plug-ins of a kind are and what they must be.

    Attributes:
        package: the package whose folder is the registry.
        group: entry-point group of other distributions.
        contract: the module that has their base class.
        base: the class that they extend.
        helpers: abstract classes of the contract that extend it, which they may extend instead.
        needs: class attributes that they must set.
        plural: what the command line calls all of them.
        named_by: the class attribute that is the name users write; None where the name of the file is.
        torch: whether they need it.
    """

    package: str
    group: str
    contract: str = "parbench.api"
    base: str
    needs: tuple[str, ...]
    plural: str
    named_by: str | None = None
    torch: bool = True
    helpers: tuple[str, ...] = ()


PLACES: Mapping[Kind, Place] = {
    "strategy": Place(
        package="parbench_strategies",
        group="parbench.strategies",
        base="Strategy",
        needs=("paper", "agrees"),
        plural="strategies",
    ),
    "workload": Place(
        package="parbench.workloads",
        group="parbench.workloads",
        base="Workload",
        needs=("unit", "sizes", "source"),
        plural="workloads",
        named_by="name",
    ),
    "probe": Place(
        package="parbench.probes",
        group="parbench.probes",
        base="Probe",
        needs=(),
        plural="probes",
    ),
    "schedule": Place(
        package="parbench_strategies.pipelined.schedules",
        group="parbench.schedules",
        contract="parbench.schedule",
        base="Schedule",
        needs=("name", "paper"),
        plural="schedules",
        named_by="name",
        torch=False,
    ),
    "fusion": Place(
        package="parbench_strategies.fusion",
        group="parbench.fusions",
        contract="parbench.fusion",
        base="FusionRule",
        needs=("name", "paper"),
        plural="fusions",
        named_by="name",
        torch=False,
    ),
    "collective": Place(
        package="parbench_strategies.collective",
        group="parbench.collectives",
        contract="parbench.collective",
        base="Collective",
        needs=("name", "paper"),
        plural="collectives",
        named_by="name",
        helpers=("PeerCollective",),
    ),
    "compressor": Place(
        package="parbench_strategies.compression",
        group="parbench.compressors",
        contract="parbench.compressor",
        base="Compressor",
        needs=("name", "paper", "linear"),
        plural="compressors",
        named_by="name",
        helpers=("MeanCompressor", "GatherCompressor", "RoundsCompressor"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plug-in that exists, not imported.

    Attributes:
        name: what the user writes.
        module: name of the module that defines it.
        attribute: the class in the module; None takes the only concrete one.
        file: its source, where it is a file.
        origin: where it comes from, for messages.
        by_path: import `file` itself: the command line named it.
        function: `attribute` is a function that builds jobs: the command line named it.
    """

    name: str
    module: str
    attribute: str | None = None
    file: Path | None = None
    origin: str
    by_path: bool = False
    function: bool = False


def discover(kind: Kind, plugins: Sequence[Path]) -> dict[str, list[Found]]:
    """Return all plug-ins of `kind` by name, in alphabetical order; more than one under a name is a clash."""
    place = PLACES[kind]
    files = [
        replace(one, name=_given_name(one, place))
        for one in (*_in_package(place.package), *_named_files(kind, plugins))
    ]
    everything = [*files, *_entry_points(place.group)]
    found: dict[str, list[Found]] = {}
    for one in sorted(everything, key=lambda one: one.name):
        found.setdefault(one.name, []).append(one)
    return found


def checked_plugin(path: Path) -> Path:
    """Return the absolute path of a file given by `--plugin`; a function given by `--workload` stays as it is.

    Raises:
        UsageError: it is not a Python file, or its name cannot be a plug-in's name.
    """
    if is_function(path):
        return path
    if not path.is_file():
        raise UsageError(f"--plugin takes a Python file, and there is none at {str(path)!r}; check the path")
    if path.suffix != ".py" or not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"--plugin takes NAME.py whose NAME is letters, digits, '_', '.' or '-', given {path.name!r}; rename it"
        )
    return path.resolve()


def _in_package(package: str) -> Iterator[Found]:
    # A package inside another kind's, as the schedules lie among the strategies, is that kind's alone.
    inner = tuple(f"{one.package}." for one in PLACES.values() if one.package.startswith(f"{package}."))
    top, *path = package.split(".")
    spec = importlib.util.find_spec(top)  # of the topmost package only: others would be imported
    for folder in spec.submodule_search_locations or () if spec else ():
        root = Path(folder, *path)
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).with_suffix("").parts
            module = ".".join((package, *parts))
            if not module.startswith(inner) and not any(part.startswith(("_", ".")) for part in parts):
                yield Found(name=parts[-1], module=module, file=file, origin=str(file))


def _entry_points(group: str) -> Iterator[Found]:
    for point in importlib.metadata.entry_points(group=group):
        if _NAME.fullmatch(point.name):
            origin = f"{point.value} of {point.dist.name if point.dist else 'an installed package'}"
            yield Found(name=point.name, module=point.module, attribute=point.attr or None, origin=origin)


def _named_files(kind: Kind, plugins: Sequence[Path]) -> Iterator[Found]:
    for file in plugins:
        if is_function(file):
            if kind == "workload":
                module, _, attribute = str(file).partition(":")
                name = function_name(str(file))
                yield Found(name=name, module=module, attribute=attribute, origin=str(file), function=True)
        elif kind in _kinds_in(file):
            # The content is part of the name, so that an edited file is read again within one process.
            digest = hashlib.sha256(str(file).encode() + b"\0" + file.read_bytes()).hexdigest()[:12]
            module = f"parbench_plugin_{digest}"
            yield Found(name=file.stem, module=module, file=file, origin=str(file), by_path=True)


def _given_name(found: Found, place: Place) -> str:
    """Return the name that users write, as a class of the file states it; else the name of the file."""
    if place.named_by is None or found.file is None:
        return found.name
    try:
        classes = [one for one in ast.parse(found.file.read_bytes()).body if isinstance(one, ast.ClassDef)]
    except (SyntaxError, ValueError, OSError):
        return found.name
    # A file may hold plug-ins of several kinds, each with a name of its own.
    own = [one for one in classes if not _bases(one) & _bases_of_others(place)]
    for line in (line for one in own for line in one.body if isinstance(line, ast.Assign | ast.AnnAssign)):
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        named = any(isinstance(target, ast.Name) and target.id == place.named_by for target in targets)
        stated = line.value.value if isinstance(line.value, ast.Constant) else None
        if named and isinstance(stated, str) and _NAME.fullmatch(stated):
            return stated
    return found.name


def _kinds_in(file: Path) -> set[Kind]:
    """Return what a file seems to define by the bases of its classes; all kinds where that is not clear."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set(PLACES)
    bases = {base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in _bases(node)}
    return {kind for kind, place in PLACES.items() if bases & {place.base, *place.helpers}} or set(PLACES)


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases}


def _bases_of_others(place: Place) -> set[str]:
    others = {base for one in PLACES.values() for base in (one.base, *one.helpers)}
    return others - {place.base, *place.helpers}


def first_line(file: Path | None) -> str:
    """Return the first line of a module's docstring without importing it ("" where there is none)."""
    if file is None:
        return ""
    try:
        return (ast.get_docstring(ast.parse(file.read_bytes())) or "").partition("\n")[0]
    except (SyntaxError, ValueError, OSError):
        return ""
