"""`parbench conform` puts plug-ins through the laws that all of them obey, and says which one is broken and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from rich.table import Table

    from parbench.conformance import Verdict
    from parbench.discover import Kind
    from parbench.registry import Registry

_KINDS: dict[str, Kind] = {
    "strategies": "strategy",
    "compressors": "compressor",
    "workloads": "workload",
    "probes": "probe",
}


def conform(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME | FILE | KIND",
            help="A plug-in with its arguments, your own file, or strategies, compressors, workloads, probes, all.",
            show_default=False,
        ),
    ],
    world_size: Annotated[
        list[int] | None,
        typer.Option(
            "-n", "--world-size", metavar="N", min=1, help="Ranks to examine strategies and compressors in; repeatable."
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option("--plugin", metavar="FILE", help="Your own plug-in: FILE is imported.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=1, help="Seconds without progress that are a hang.")
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Put strategies, compressors, workloads and probes through their laws; exits with 1 if one is broken.

    A strategy must train as one process does (uneven batches, accumulation, tied parameters and parameters without
    gradient included), send the bytes it says, repeat itself, and leave nothing behind.
    """
    import msgspec

    from parbench.registry import Registry

    plugins = [*(plugin or []), *([Path(what)] if what.endswith(".py") else [])]
    registry = Registry(plugins)
    wanted = list(_wanted(what, registry))
    verdicts = []
    for verdict in _verdicts(wanted, sorted(set(world_size or [2])), registry, timeout):
        verdicts.append(verdict)
        if not as_json:
            output.results(_table(verdict))
    if as_json:
        output.document(msgspec.json.encode({"verdicts": verdicts}))
    wrong = [verdict for verdict in verdicts if not verdict.passed]
    if wrong:
        output.notes([f"{len(wrong)} of {len(verdicts)} break a law"])
        raise typer.Exit(1)


def _wanted(what: str, registry: Registry) -> Iterator[tuple[Kind, str]]:
    from parbench.errors import UsageError, unknown_name
    from parbench.grammar import parse

    if what == "all" or what in _KINDS:
        for kind in _KINDS.values() if what == "all" else (_KINDS[what],):
            for name in registry.names(kind):
                if _needs_no_argument(registry, kind, name) and (what != "all" or _is_said_here(registry, kind, name)):
                    yield kind, name
        return
    if what.endswith(".py"):
        found = [(kind, Path(what).stem) for kind in _KINDS.values() if Path(what).stem in registry.names(kind)]
        if not found:
            raise UsageError(
                f"{what} defines no strategy, compressor, workload or probe; extend one of parbench.api's classes"
            )
        yield from (one for one in found if _is_said_here(registry, *one))
        return
    name = parse(what).name
    kinds = [kind for kind in _KINDS.values() if name in registry.names(kind)]
    if not kinds:
        known = [one for kind in _KINDS.values() for one in registry.names(kind)]
        raise unknown_name("plug-in", name, [*known, *_KINDS, "all"], "parbench list strategies")
    yield from ((kind, what) for kind in kinds)


def _needs_no_argument(registry: Registry, kind: Kind, name: str) -> bool:
    """Whether a plug-in can be made by its name alone: `images` needs a file, which only its user has."""
    from parbench.errors import ParbenchError

    try:
        registry.load(kind, name)
    except ParbenchError:
        return True  # broken: its check says so
    import inspect

    parameters = inspect.signature(registry.load(kind, name)).parameters.values()
    return all(one.default is not one.empty for one in parameters)


def _is_said_here(registry: Registry, kind: Kind, name: str) -> bool:
    """Whether this is the kind to look at `name` as: a broken file may pass for all of them, which one verdict says."""
    from parbench.errors import ParbenchError

    kinds = [one for one in _KINDS.values() if name in registry.names(one)]
    whole = []
    for one in kinds:
        try:
            registry.load(one, name)
        except ParbenchError:
            continue
        whole.append(one)
    return kind in whole or (not whole and kind == kinds[0])


def _verdicts(
    wanted: Sequence[tuple[Kind, str]], sizes: Sequence[int], registry: Registry, timeout_s: float
) -> Iterator[Verdict]:
    from parbench.conformance import Verdict, check_compressor, check_probe, check_workload
    from parbench.conformance.findings import broken
    from parbench.conformance.sweep import strategy_verdicts
    from parbench.errors import ParbenchError

    yield from strategy_verdicts([name for kind, name in wanted if kind == "strategy"], sizes, registry, timeout_s)
    for kind, name in wanted:
        try:
            if kind == "compressor":
                for size in sizes:
                    yield check_compressor(name, size, registry=registry)
            elif kind == "workload":
                yield check_workload(name, registry=registry)
            elif kind == "probe":
                yield check_probe(name, registry=registry)
        except ParbenchError as error:  # it breaks only itself: the others are still looked at
            yield Verdict(kind=kind, name=name, world_size=None, findings=(broken("can be made", str(error)),))


def _table(verdict: Verdict) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from parbench.report.words import visible

    ranks = "" if verdict.world_size is None else f" at {verdict.world_size} ranks"
    result = (
        "obeys every law"
        if verdict.passed
        else f"breaks {len(verdict.broken)} law{'' if len(verdict.broken) == 1 else 's'}"
    )
    title = f"{verdict.kind} {visible(verdict.name, 80)}{ranks} {result} ({verdict.seconds.get('all', 0.0):.1f} s)"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("", "law", "seen"):
        table.add_column(name, overflow="fold", no_wrap=name == "")
    marks = {"holds": ("✓", "green"), "broken": ("✗", "red"), "not applicable": ("–", "dim")}
    for finding in verdict.findings:
        mark, style = marks[finding.outcome]
        table.add_row(Text(mark, style=style), Text(finding.law), Text(visible(finding.detail, 600)))
    return table
