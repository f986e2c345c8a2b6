"""Running carries out `parbench run` once it is known what is asked for: measure, report, say how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from rich.text import Text

    from parbench.campaign import Outcome
    from parbench.requirements import Demands
    from parbench.suite import Suite


def start(
    suite: Suite,
    plugins: Sequence[Path],
    out: Path,
    demands: Demands,
    *,
    fresh: bool,
    as_json: bool,
    dry_run: bool,
    strict: bool,
    page: bool,
) -> None:
    """Print the cells of a suite, or measure them and report; ends the command with its exit code."""
    from parbench.cli.progress import LiveProgress
    from parbench.registry import Registry
    from parbench.resolve import resolve

    registry = Registry(plugins)
    if dry_run:
        _print_cells(resolve(suite, registry), as_json)
        return
    from parbench.sweep import run_sweep

    with LiveProgress() as progress:
        outcome = run_sweep(
            suite,
            out=out,
            registry=registry,
            fresh=fresh,
            listener=progress,
            demands=demands,
        )
    if not outcome.leads:  # a rank of a torchrun launch: rank 0 reports
        raise typer.Exit(outcome.exit_code)
    raise typer.Exit(_report(outcome, as_json=as_json, strict=strict, page=page))


def _report(outcome: Outcome, *, as_json: bool, strict: bool, page: bool) -> int:
    from rich.text import Text

    from parbench.errors import worst_exit_code
    from parbench.report.words import visible

    output.notes(outcome.notes)
    if as_json:
        output.document(outcome.document)
    else:
        from parbench.report.terminal import sweep_table

        table = sweep_table(outcome.cells, outcome.records, width=output.console().width)
        output.results(table)
        if outcome.store_error is None:
            output.results(Text(f"results: {visible(outcome.path, 4000)}", overflow="ignore", no_wrap=True))
            if page and outcome.records:
                output.results(*_page(outcome))
    if outcome.store_error is not None:
        output.notes([f"the results could not be stored, they are only printed here: {outcome.store_error}"])
    unsupported = any(record.status == "unsupported" for record in outcome.records)
    warned = any(record.warnings for record in outcome.records)
    strictly = [*([3] if unsupported else []), *([1] if warned else [])] if strict else []
    return worst_exit_code([outcome.exit_code, *strictly])


def _page(outcome: Outcome) -> Iterator[Text]:
    """Leave the same table on disk as a page; that it cannot be made takes nothing from what was measured."""
    from rich.text import Text

    from parbench.errors import ParbenchError
    from parbench.naming import safe_name
    from parbench.report.sources import source_of
    from parbench.report.words import visible
    from parbench.report.writing import write_page
    from parbench.store import Run

    runs = [Run(folder=outcome.path / safe_name(record.id), record=record) for record in outcome.records]
    try:
        path = write_page(source_of(outcome.path, runs, cells=outcome.cells), outcome.path)
    except (ParbenchError, ImportError, ValueError, ArithmeticError, LookupError, TypeError) as error:
        output.notes([f"the report could not be written ({error}); parbench report {outcome.path} tries again"])
        return
    yield Text(f"report: {visible(path, 4000)}", overflow="ignore", no_wrap=True)


def _print_cells(suite: Suite, as_json: bool) -> None:
    from parbench.report.cells import cells_document, cells_table

    if as_json:
        output.document(cells_document(suite))
        return
    output.notes(suite.notes)
    output.results(cells_table(suite))
