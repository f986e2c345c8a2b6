"""A store is a folder of results, one folder per run: written whole or not at all, found again without an index."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from parbench.columns import STEP_TYPES, TRAFFIC_TYPES, Column, parquet
from parbench.errors import StoreError, UnreadableError, UsageError
from parbench.filesystem import (
    PARTIAL,
    Filesystem,
    probe_writing,
    publish_file,
    publish_folder,
    sweep,
    sync_folder,
)
from parbench.naming import new_run_id, safe_name
from parbench.record import RunRecord
from parbench.recordfile import RECORD, decode_record, encode_record, read_record

__all__ = [
    "RECORD",
    "STEPS",
    "TRAFFIC",
    "Column",
    "Filesystem",
    "Problem",
    "Run",
    "Store",
    "decode_record",
    "encode_record",
    "find_records",
    "find_runs",
    "new_run_id",
    "read_record",
    "safe_name",
]

STEPS = "steps.parquet"
TRAFFIC = "traffic.parquet"

_PIECE_BYTES = 2**20
NO_COLUMNS: Mapping[str, Column] = MappingProxyType({})


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A stored thing that was left out, and why."""

    path: Path
    sentence: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A record and the folder it was found in."""

    folder: Path
    record: RunRecord


class Store:
    """Results under one folder: `root/<suite>/<run id>/record.json` and what belongs to it."""

    def __init__(self, root: Path, filesystem: Filesystem | None = None) -> None:
        self.root = Path(root)
        self._fs = filesystem or Filesystem()

    def probe(self) -> None:
        """Make sure that results can be stored, by storing something and removing it.

        Raises:
            StoreError: they cannot; nothing has been measured yet.
        """
        with _stored(self.root):
            self._make(self.root)
            probe_writing(self._fs, self.root)

    def write(
        self,
        record: RunRecord,
        *,
        steps: Mapping[str, Column],
        files: Mapping[str, Path],
        traffic: Mapping[str, Column] = NO_COLUMNS,
    ) -> Path:
        """Store one run and return its folder.

        Args:
            record: what was measured; `record.suite` and `record.id` name the folder.
            steps: raw samples as columns of equal length: phase, round, rank, step, seconds, samples, loss.
            files: path in the run's folder ("log/rank0.log") -> file to copy there.
            traffic: collectives of the traced steps as columns (`TRAFFIC_TYPES`); none where there is no trace.

        Raises:
            StoreError: it could not be stored; nothing of it is left, and nothing else was touched.
        """
        final = self.root / safe_name(record.suite) / safe_name(record.id)
        with _stored(final):
            suite = self._inside(record.suite)
            contents = {RECORD: iter([encode_record(record)]), STEPS: iter([parquet(steps, STEP_TYPES)])}
            if traffic:
                contents[TRAFFIC] = iter([parquet(traffic, TRAFFIC_TYPES)])
            copies = {"/".join(map(safe_name, name.split("/"))): _pieces(source) for name, source in files.items()}
            self._make(suite)
            sweep(suite)
            publish_folder(self._fs, final, contents | copies)
        return final

    def write_document(self, name: str, document: bytes) -> Path:
        """Store one file directly under the root, replacing the one of that name, and return its path.

        Raises:
            StoreError: it could not be stored; the old file, if any, is still whole.
        """
        final = self.root / safe_name(name)
        with _stored(final):
            self._inside(name)
            self._make(self.root)
            sweep(self.root)
            publish_file(self._fs, final, document)
        return final

    def _inside(self, name: str) -> Path:
        """Return the path that `name` has under the root, through no symbolic link below it."""
        path = self.root / safe_name(name)
        if path.is_symlink():
            raise StoreError(f"cannot store results in {path}: it is a symbolic link; remove it or use another name")
        return path

    def _make(self, folder: Path) -> None:
        """Make `folder` and its parents, each durable in its own."""
        if folder.is_dir():
            return
        if folder.parent != folder:
            self._make(folder.parent)
        try:
            self._fs.mkdir(folder)
        except FileExistsError:
            # Another run made it just now, or it is a file, which whatever is done next says better.
            if not folder.is_dir():
                raise
        sync_folder(self._fs, folder.parent)


def find_records(path: Path | str) -> tuple[list[RunRecord], list[Problem]]:
    """Return all records under `path` by id, and what could not be read there; see `find_runs`."""
    runs, problems = find_runs(path)
    return [run.record for run in runs], problems


def find_runs(path: Path | str) -> tuple[list[Run], list[Problem]]:
    """Return all runs under `path` by id, and what could not be read there.

    Args:
        path: a record.json, the folder of a run, of a suite or of all results.

    Returns:
        The runs, and one problem for each record that was left out: show their number, they may be what is looked for.

    Raises:
        UsageError: there is nothing at `path`.
        UnreadableError: `path` names one record, and that cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError(f"there is no file or folder {str(path)!r}; give a record.json or a folder of results")
    if not path.is_dir() or (path / RECORD).is_file():
        return [Run(folder=path if path.is_dir() else path.parent, record=read_record(path))], []
    runs: list[Run] = []
    problems: list[Problem] = []
    for folder in record_folders(path, problems):
        try:
            runs.append(Run(folder=folder, record=read_record(folder)))
        except UnreadableError as error:
            problems.append(Problem(path=folder / RECORD, sentence=str(error)))
    return sorted(runs, key=lambda run: (run.record.id, run.folder)), problems


def record_folders(top: Path, problems: list[Problem]) -> Iterator[Path]:
    """Yield folders that hold a record; links are not followed, so there are no loops."""

    def unlisted(error: OSError) -> None:
        problems.append(
            Problem(path=Path(error.filename), sentence=f"{error.filename}: cannot be listed: {error.strerror}")
        )

    for here, below, files in os.walk(top, onerror=unlisted, followlinks=False):
        below[:] = sorted(name for name in below if not name.startswith(PARTIAL))
        if RECORD in files:
            below.clear()
            yield Path(here)


def _pieces(source: Path) -> Iterator[bytes]:
    with source.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


@contextmanager
def _stored(path: Path) -> Iterator[None]:
    """Turn what went wrong while storing at `path` into a StoreError that says so."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(path) else ""
        raise StoreError(
            f"cannot store results in {path}: {error.strerror or error} [{name}]{at}; "
            "make room or rights there, or choose another folder (-o DIR)"
        ) from error
    except (ValueError, TypeError) as error:
        raise StoreError(f"cannot store results in {path}: {error}") from error
