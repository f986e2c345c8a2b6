"""A request is what flags, settings and a file together ask `parbench run` for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parbench.suite import Suite


def changes_of(flags: Mapping[str, Sequence[str]], settings: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Return the settings that flags and `--set` replace; `--set` wins.

    Raises:
        UsageError: a value is not allowed.
    """
    from parbench import fields, plan

    labels = {"timeout_s": "--timeout"}
    found: dict[str, tuple[object, ...]] = {}
    for name, texts in flags.items():
        label = labels.get(name, f"--{name.replace('_', '-')}")
        values = [fields.from_text(name, text, label) for text in texts]
        if values:
            found[name] = tuple(dict.fromkeys(values))
    return found | dict(plan.assignment(text) for text in settings)


def suite_of(what: str | None, changes: Mapping[str, tuple[object, ...]], name: str | None) -> Suite:
    """Return the suite that `what` names: a TOML file, a stored record, a workload, or nothing for the default.

    Raises:
        UsageError: there is no such file, or something in it is not allowed.
        UnreadableError: the record cannot be read.
    """
    from parbench import suite

    if what is None:
        return suite.default(changes, name)
    if what.endswith(".toml"):
        return suite.load(Path(what), changes, name)
    if what.endswith(".json") or _holds_record(what):
        from parbench.store import find_records

        return suite.from_record(find_records(Path(what))[0][0], changes, name)
    return suite.from_flags(what, changes, name)


def named(what: str | None, function: str | None) -> str | None:
    """Return what is to be run: `what`, or the workload that a function given by `--workload` is.

    Raises:
        UsageError: the function is not given as package.module:function.
    """
    if function is None:
        return what
    from parbench.functionname import function_name

    name = function_name(function)
    return what or name  # a suite or a record names it itself


def _holds_record(text: str) -> bool:
    try:
        return (Path(text) / "record.json").is_file()
    except (OSError, ValueError):
        # Too long or odd for a path: then it is a workload, or nothing.
        return False
