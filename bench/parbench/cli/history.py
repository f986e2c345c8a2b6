"""`parbench history` says where the runs of a folder step to another level, and between which commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output


def history(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Results of many runs, or files of pytest-benchmark.", show_default=False),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="What to look at; repeat it for several. Every metric with a direction unless given.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Find change points in the history of each cell and metric; needs `pip install 'parbench[history]'`."""
    import msgspec

    from parbench.changepoints import changes
    from parbench.cli.check import newest

    found = changes(newest(path), metric or ())
    if as_json:
        output.document(msgspec.json.format(msgspec.json.encode(found), indent=1))
        return
    from parbench.report.changes import changes_table

    output.results(changes_table(found))
