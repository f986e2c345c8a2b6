"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from parbench.errors import StoreError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Without a terminal there is no width to fit; tables are read in logs and files.
_WIDTH_OF_FILES = 120


def console() -> Console:
    """Return the console of results: stdout, in plain text where it is no terminal."""
    from rich.console import Console

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Console(highlight=False, markup=False, emoji=False)
    return Console(highlight=False, markup=False, emoji=False, width=_WIDTH_OF_FILES)


def results(*shown: RenderableType) -> None:
    """Print results."""
    out = console()
    with _printing():
        for one in shown:
            out.print(one)


def document(data: bytes) -> None:
    """Print one document (JSON or Markdown) as it is, and nothing else, on stdout."""
    with _printing():
        typer.echo(data.decode().rstrip("\n"))


def file(path: Path, data: bytes, *, append: bool = False) -> None:
    """Write a file that was asked for beside what is printed.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        with path.open("ab" if append else "wb") as stream:
            stream.write(data)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}; choose another file") from error


@contextmanager
def _printing() -> Iterator[None]:
    """Turn an output that takes no more into one sentence; whoever closed a pipe wants none."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python ends.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            return
        raise StoreError(f"the results cannot be printed: {error.strerror}; make room where stdout goes") from error


def notes(sentences: Iterable[str]) -> None:
    """Print sentences worth knowing on stderr, each once."""
    from parbench.report.words import visible

    for sentence in dict.fromkeys(sentences):
        typer.echo(f"parbench: {visible(sentence)}", err=True)
