"""`parbench trace` says where traced steps went and what ranks exchanged, and merges their traces into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.tracing.clocks import Aligned
    from parbench.tracing.folder import Folder

EXAMPLES = "parbench trace results/digits/RUN · parbench trace my-job/traces -o merged.json.gz"


def trace(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A run's folder or its record.json; a folder with one trace of torch.profiler per rank; or one trace.",
            show_default=False,
        ),
    ],
    merged: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write all ranks on one clock, for Perfetto or chrome://tracing; compressed if it ends with .gz.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 7 where a trace cannot be read.")] = False,
) -> None:
    """Show where traced steps went and what ranks exchanged; torch is not needed."""
    from parbench.errors import UnreadableError
    from parbench.tracing.clocks import aligned
    from parbench.tracing.folder import opened
    from parbench.tracing.summary import summary

    folder = opened(path)
    output.notes(folder.problems)
    if folder.problems:
        every = len(folder.problems) + len(folder.traces)
        output.notes([f"{len(folder.problems)} of {every} files cannot be read and are left out"])
    together = aligned(folder.traces)
    found = summary(together)
    if as_json:
        from parbench.report.trace_document import trace_document

        # What is said to be written is written first.
        if merged is not None:
            _merge(folder, together, merged)
        output.document(trace_document(path, found, merged, folder.problems))
    else:
        from parbench.report.traces import tables

        output.results(*tables(found))
        if merged is not None:
            _merge(folder, together, merged)
    if strict and folder.problems:
        raise typer.Exit(UnreadableError.exit_code)


def _merge(folder: Folder, together: Aligned, into: Path) -> None:
    """Write the merged trace whole or not at all."""
    import os

    from parbench.errors import StoreError
    from parbench.filesystem import Filesystem, publish_file
    from parbench.tracing.merged import write_merged

    final = Path(os.path.realpath(into))  # a link stays one
    if final.exists() and not final.is_file():
        raise StoreError(f"the merged trace cannot be stored: {str(into)!r} is no file; give another name to -o")
    done = write_merged(folder.files, together, packed=into.name.endswith(".gz"))
    try:
        publish_file(Filesystem(), final, done.data)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(
            f"the merged trace cannot be stored at {str(into)!r}: {why}; give another name to -o"
        ) from error
    output.notes(done.notes)
    output.notes([f"{done.events} events on one clock in {into} (open it in ui.perfetto.dev or chrome://tracing)"])
