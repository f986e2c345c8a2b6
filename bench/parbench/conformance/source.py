"""Laws of the source: a plug-in names its paper, defines itself in one sentence and imports only the contract.

A strategy that composes others may also import what a family of strategies exports: the names in `__all__` of its
package, and nothing else of it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from parbench.conformance.findings import Finding, judged

# What a plug-in may build on besides the standard library, the contract and its own folder.
_LIBRARIES = ("torch", "numpy", "sklearn")
_CONTRACT = ("parbench.api", "parbench.errors", "parbench.fusion", "parbench.paper", "parbench.schedule")
_FAMILIES = "parbench_strategies"  # each package in it is a family


def source_laws(file: Path, cls: type, *, paper: bool) -> list[Finding]:
    """Return the findings of the laws that need no rank.

    Args:
        file: the plug-in's source.
        cls: its class.
        paper: whether it must name one.
    """
    found = [judged("is defined in one sentence", _docstring_problem(cls))]
    if paper:
        found.append(judged("names its paper", _paper_problem(cls)))
    found.append(judged("imports only the contract", _import_problem(file, cls.__module__)))
    return found


def _docstring_problem(cls: type) -> str | None:
    first = (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    if not first:
        return f"class {cls.__name__} has no docstring; say in one sentence what it does"
    if not first.endswith(".") or len(first.split()) < 3:
        return f"the docstring of {cls.__name__} begins with {first[:60]!r}; make it one sentence with a full stop"
    return None


def _paper_problem(cls: type) -> str | None:
    paper = getattr(cls, "paper", None)
    title, url = getattr(paper, "title", ""), getattr(paper, "url", "")
    if not title.strip():
        return f"{cls.__name__}.paper has no title; say where the idea comes from: paper = Paper(title, url)"
    if not url.startswith(("https://", "http://")):
        return f"{cls.__name__}.paper.url is {url!r}; give the paper's address"
    return None


def _import_problem(file: Path, module: str) -> str | None:
    # Siblings: anything in the plug-in's own folder, whatever package that is.
    package = module.rpartition(".")[0]
    wrong = sorted({name for name in _imported(file) if not _allowed(name, package)})
    if not wrong:
        return None
    return (
        f"{file.name} imports {', '.join(wrong)}; allowed are {', '.join(_CONTRACT)}, siblings, torch, and what "
        "another family exports (from the package itself, by a name in its __all__)"
    )


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            base = node.module or ""
            # `from parbench import api` names a module in its second half, or what a family exports.
            halves = base == "parbench" or base.rpartition(".")[0] == _FAMILIES
            yield from ((f"{base}.{alias.name}" for alias in node.names) if halves else (base,))


def _allowed(name: str, package: str) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in _LIBRARIES:
        return True
    if name in _CONTRACT or (bool(package) and (name == package or name.startswith(f"{package}."))):
        return True
    family, _, exported = name.rpartition(".")
    return family.rpartition(".")[0] == _FAMILIES and exported in _exports(family)


def _exports(family: str) -> set[str]:
    """Return the names in `__all__` of a family's package, without importing it."""
    spec = importlib.util.find_spec(_FAMILIES)
    for folder in spec.submodule_search_locations or () if spec else ():
        file = Path(folder, family.rpartition(".")[2], "__init__.py")
        for node in ast.parse(file.read_bytes()).body if file.is_file() else ():
            named = isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
            if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple):
                return {
                    one.value for one in node.value.elts if isinstance(one, ast.Constant) and type(one.value) is str
                }
    return set()
