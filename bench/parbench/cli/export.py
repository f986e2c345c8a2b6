"""`parbench export` writes stored runs for TensorBoard, Weights & Biases (offline) or as lines of MLPerf."""

from __future__ import annotations

import importlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from parbench.exporters.exported import Exported


class Tool(StrEnum):
    """Whom it is for."""

    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLLOG = "mllog"


def export(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Results, or one record.json.", show_default=False)],
    tool: Annotated[
        Tool,
        typer.Option(
            "--to",
            help="tensorboard and wandb need pip install 'parbench[tensorboard]' or 'parbench[wandb]'; wandb writes "
            "offline runs; mllog writes lines that mlperf-logging parses.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="DIR", help="Folder to write to; PATH/export/TOOL unless given.", show_default=False
        ),
    ] = None,
) -> None:
    """Export runs to another tool; what was not measured, or is suspect, is left out and said."""
    from rich.text import Text

    from parbench.errors import StoreError, UnreadableError, UsageError
    from parbench.exporters.exported import exported
    from parbench.report.words import visible
    from parbench.store import Problem, find_runs

    runs, problems = find_runs(path)
    output.notes(problem.sentence for problem in problems)
    if problems and not runs:
        raise UnreadableError(f"no record in {str(path)!r} can be read")
    if not runs:
        raise UsageError(f"no records in {str(path)!r}; give the folder that parbench run printed")
    folder = out or (path if path.is_dir() else path.parent) / "export" / tool.value
    module = importlib.import_module(f"parbench.exporters.{tool.value}")
    write = cast("Callable[[Exported, Path], Path]", module.write)
    suspect = 0
    unread: list[Problem] = []
    for one in exported(runs, unread):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            place = write(one, folder)
        except OSError as error:
            raise StoreError(f"cannot write to {str(folder)!r}: {error.strerror}; choose another folder") from error
        suspect += len(one.left_out)
        output.results(Text(visible(place, 4000), overflow="ignore", no_wrap=True))
    output.notes(problem.sentence for problem in unread)
    if suspect:
        output.notes([f"{suspect} metrics are left out: not measured, or suspect (their reasons are in the records)"])
