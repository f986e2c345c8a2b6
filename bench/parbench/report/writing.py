"""Writing puts reports into files: the page, tables for other programs, and single figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parbench.errors import StoreError, UsageError
from parbench.filesystem import Filesystem, publish_file
from parbench.naming import safe_name
from parbench.report.sources import Source

if TYPE_CHECKING:
    from parbench.report.figures.canvas import Width
    from parbench.report.figures.saving import Format


def write_page(source: Source, folder: Path, *, style: str | None = None, watched: float = 0.0) -> Path:
    """Write `report.html` into `folder` and return its path.

    Raises:
        StoreError: it cannot be written.
        UsageError: matplotlib has no such style.
    """
    return put(folder / "report.html", page_bytes(source, folder, style=style, watched=watched))


def page_bytes(source: Source, folder: Path, *, style: str | None = None, watched: float = 0.0) -> bytes:
    """Return the page that would be written into `folder`."""
    from parbench.report.page.html import html_of
    from parbench.report.page.model import page_of

    _check_style(style)
    return html_of(page_of(source, folder, style=style, watched=watched))


def write_table(source: Source, folder: Path, form: str) -> Path:
    """Write the report in another form and return its path.

    Args:
        source: the records.
        folder: where to.
        form: of TABLES.

    Raises:
        StoreError: it cannot be written.
    """
    name, make = TABLES[form]
    return put(folder / name, make(source))


def write_figures(
    source: Source, folder: Path, name: str, *, form: Format, width: Width = "column", style: str | None = None
) -> list[Path]:
    """Write the figures of one kind, one per group of comparable cells, and return their paths.

    Args:
        source: the records.
        folder: where to.
        name: of the catalogue.
        form: "svg", "png" or "pdf".
        width: "column" or "page".
        style: names a style of matplotlib.

    Raises:
        UsageError: there is no such kind of figure, or the records hold nothing that it shows.
        StoreError: it cannot be written.
    """
    from parbench.report.catalogue import drawn, entry
    from parbench.report.data.measured import short_names
    from parbench.report.figures.canvas import Look
    from parbench.report.figures.colours import palette
    from parbench.report.figures.saving import saved

    _check_style(style)
    marks = palette(short_names(cell.strategy for cell in source.cells).values())
    look = Look(width=width, style=style or {}, marks=marks)
    found = list(drawn(entry(name), source, look))
    if not found:
        raise UsageError(f"the records in {str(source.path)!r} hold nothing that figure {name!r} shows")
    names = _names(name, [one.group for one in found])
    return [
        put(folder / f"{called}.{form}", saved(one.figure, form, look))
        for called, one in zip(names, found, strict=True)
    ]


def _names(name: str, groups: Sequence[str]) -> list[str]:
    """Return a file name per group: readable ones where those differ."""
    if len(groups) == 1:
        return [name]
    plain = [safe_name(re.sub(r"[^A-Za-z0-9.]+", "-", f"{name}-{group}").strip("-.")) for group in groups]
    return plain if len(set(plain)) == len(plain) else [safe_name(f"{name}-{group}") for group in groups]


def put(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish_file(Filesystem(), path, data)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}; choose another folder (-o DIR)") from error
    return path


def _check_style(style: str | None) -> None:
    if style is None:
        return
    import matplotlib.style

    from parbench.errors import unknown_name

    if style not in matplotlib.style.available:
        raise unknown_name("style", style, matplotlib.style.available, "styles of matplotlib")


def _markdown(source: Source) -> bytes:
    from parbench.report.summary_markdown import report_markdown

    return report_markdown(source).encode()


def _latex(source: Source) -> bytes:
    from parbench.report.latex import report_latex

    return report_latex(source).encode()


def _csv(source: Source) -> bytes:
    from parbench.frames import metrics_frame
    from parbench.spreadsheet import harmless

    frame = metrics_frame(source.runs)
    texts = frame.select_dtypes(exclude="number").columns
    # An empty field is a value that is not known, as in the frame.
    safe = frame.assign(**{name: frame[name].map(harmless, na_action="ignore") for name in texts})
    return bytes(safe.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace"))


def _parquet(source: Source) -> bytes:
    import io

    from parbench.frames import metrics_frame

    out = io.BytesIO()
    metrics_frame(source.runs).to_parquet(out, index=False)
    return out.getvalue()


TABLES: Mapping[str, tuple[str, Callable[[Source], bytes]]] = {
    "markdown": ("report.md", _markdown),
    "csv": ("report.csv", _csv),
    "parquet": ("report.parquet", _parquet),
    "latex": ("report.tex", _latex),
}


def stamps(path: Path, more: Sequence[Path] = ()) -> Iterator[tuple[str, int]]:
    """Yield every record under `path` with the time it was written, to see whether there is something new."""
    from parbench.store import Problem, record_folders

    problems: list[Problem] = []
    folders = record_folders(path, problems) if path.is_dir() else iter(())
    for file in (*((folder / "record.json") for folder in folders), *more, *([] if path.is_dir() else [path])):
        try:
            yield str(file), file.stat().st_mtime_ns
        except OSError:
            yield str(file), 0
