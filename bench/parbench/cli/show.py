"""`parbench show` prints stored results again: the table of a sweep, and everything about one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output


def show(
    path: Annotated[
        Path, typer.Argument(help="A record.json, a run's folder, or a suite's folder.", show_default=False)
    ],
    details: Annotated[
        bool, typer.Option("--details", help="Everything about every run; always shown for a single one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 7 where a record cannot be read.")] = False,
) -> None:
    """Show results that were stored; torch is not needed."""
    from parbench.errors import UnreadableError, UsageError
    from parbench.store import find_records

    found, problems = find_records(path)
    # Stored by time and chance; read by what is compared, the fewest ranks first.
    records = sorted(found, key=lambda one: (one.spec.workload, one.spec.size, one.spec.world_size, one.spec.strategy))
    output.notes(problem.sentence for problem in problems)
    if problems:
        output.notes([f"{len(problems)} of {len(problems) + len(records)} records cannot be read and are left out"])
    if not records and problems:
        raise UnreadableError(f"no record in {str(path)!r} can be read")
    if not records:
        raise UsageError(f"no records in {str(path)!r}; give the folder that parbench run printed")
    from parbench.metrics import combine

    if as_json:
        from parbench.document import document

        output.document(document(path, records, combine(records)))
    else:
        from parbench.report.details import record_details
        from parbench.report.terminal import sweep_table

        output.results(sweep_table(combine(records), records, width=output.console().width))
        if details or len(records) == 1:
            output.results(*(record_details(record) for record in records))
    if strict and problems:
        raise typer.Exit(UnreadableError.exit_code)
