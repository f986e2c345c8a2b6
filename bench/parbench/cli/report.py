"""`parbench report` turns stored results into a page, tables for other programs, or figures for a paper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.report.figures.saving import Format
    from parbench.report.sources import Source

EXAMPLES = (
    "parbench report results/default · parbench report results/default --format csv --format latex -o tables · "
    "parbench report results/default --figure step-time --format pdf --width column"
)
_PAGE, _FIGURES = "A page and tables", "Figures"
# How long to wait before looking again, and how often the page itself looks.
_LOOK_S, _RELOAD_S = 1.0, 5.0


class Form(StrEnum):
    """What is written."""

    HTML = "html"
    MARKDOWN = "markdown"
    CSV = "csv"
    PARQUET = "parquet"
    LATEX = "latex"
    SVG = "svg"
    PNG = "png"
    PDF = "pdf"


class Width(StrEnum):
    """How wide a figure is."""

    COLUMN = "column"
    PAGE = "page"


_OF_FIGURES = (Form.SVG, Form.PNG, Form.PDF)


def report(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Results, or one record.json.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="DIR", help="Folder to write to; PATH itself unless given.", show_default=False
        ),
    ] = None,
    form: Annotated[
        list[Form] | None,
        typer.Option(
            "--format",
            help="html (report.html, the default), markdown, csv, parquet, latex; with --figure: svg, png, pdf. Repeat "
            "it for several.",
            show_default=False,
            rich_help_panel=_PAGE,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="STRATEGY",
            help="What the others are held against; single, or the first, unless given.",
            show_default=False,
        ),
    ] = None,
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            "--bench",
            metavar="FILE",
            help="Measured collectives to show too: what parbench network bench wrote with --csv or --json.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="Write this figure instead of a page: step-time, throughput, breakdown, trade-offs, scaling, links, "
            "loss, bandwidth, matrix, timeline, meters, history or predicted; all for what there is. Repeat it for "
            "several.",
            show_default=False,
            rich_help_panel=_FIGURES,
        ),
    ] = None,
    width: Annotated[
        Width, typer.Option("--width", help="A column of a paper, or its page.", rich_help_panel=_FIGURES)
    ] = Width.COLUMN,
    style: Annotated[
        str | None,
        typer.Option(
            "--style", metavar="NAME", help="A style of matplotlib.", show_default=False, rich_help_panel=_FIGURES
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Write the page again whenever there are new results, until Ctrl-C.", rich_help_panel=_PAGE
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 7 where a record cannot be read.")] = False,
) -> None:
    """Write a report: one HTML file that needs nothing else, tables, or figures; torch is not needed."""
    from parbench.errors import UnreadableError

    forms = _forms(form or [], figure or [], watch)
    folder = out if out is not None else path if path.is_dir() else path.parent
    if watch:
        _watch(path, folder, reference, bench or [], style)
        return
    source = _gathered(path, reference, bench or [])
    for one in forms:
        _say(_write(source, folder, one, figure or [], width, style))
    if strict and source.problems:
        raise typer.Exit(UnreadableError.exit_code)


def _forms(given: Sequence[Form], named: Sequence[str], watch: bool) -> list[Form]:
    """Return what to write, having refused what does not go together."""
    from parbench.errors import UsageError

    forms = list(dict.fromkeys(given)) or [Form.SVG if named else Form.HTML]
    wrong = [one for one in forms if (one in _OF_FIGURES) != bool(named)]
    if wrong and named:
        raise UsageError(f"--figure is written as svg, png or pdf, given --format {wrong[0]}; leave --figure out")
    if wrong:
        raise UsageError(f"--format {wrong[0]} is for figures: name one with --figure, such as --figure step-time")
    if watch and forms != [Form.HTML]:
        raise UsageError("--watch writes the page again, nothing else; leave --format and --figure out")
    return forms


def _gathered(path: Path, reference: str | None, benches: Sequence[Path]) -> Source:
    from parbench.report.sources import gather

    source = gather(path, reference=reference, benches=benches)
    output.notes([*source.notes, *(problem.sentence for problem in source.problems)])
    if source.problems:
        whole = len(source.problems) + len(source.runs)
        output.notes([f"{len(source.problems)} of {whole} records cannot be read and are left out"])
    return source


def _write(
    source: Source, folder: Path, form: Form, named: Sequence[str], width: Width, style: str | None
) -> list[Path]:
    from parbench.report.writing import write_figures, write_page, write_table

    if form is Form.HTML:
        return [write_page(source, folder, style=style)]
    if form not in _OF_FIGURES:
        return [write_table(source, folder, form.value)]
    names = _present(source) if "all" in named else list(dict.fromkeys(named))
    kind: Format = "png" if form is Form.PNG else "pdf" if form is Form.PDF else "svg"
    return [
        path
        for name in names
        for path in write_figures(
            source, folder, name, form=kind, width="page" if width is Width.PAGE else "column", style=style
        )
    ]


def _present(source: Source) -> list[str]:
    from parbench.report.catalogue import ENTRIES

    return [one.name for one in ENTRIES if len(one.frame(source))]


def _say(paths: Sequence[Path]) -> None:
    from rich.text import Text

    from parbench.report.words import visible

    output.results(*(Text(visible(path, 4000), overflow="ignore", no_wrap=True) for path in paths))


def _watch(path: Path, folder: Path, reference: str | None, benches: Sequence[Path], style: str | None) -> None:
    from parbench.report.writing import stamps, write_page

    before: list[tuple[str, int]] | None = None
    output.notes(["watching for new results; Ctrl-C ends it"])
    try:
        while True:
            if (now := sorted(stamps(path, benches))) != before:
                before = now
                source = _gathered(path, reference, benches)
                _say([write_page(source, folder, style=style, watched=_RELOAD_S)])
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        # The last page no longer waits for another one.
        _say([write_page(_gathered(path, reference, benches), folder, style=style)])
