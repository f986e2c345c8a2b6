"""An index is a table of summaries beside many records, so that they need not all be read again.

It is derived: what it says of a record counts only while the file is as long and as old as it was, and it can be
removed at any time. A damaged one is moved aside and made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parbench.errors import UnreadableError, UsageError
from parbench.filesystem import Filesystem, publish_file
from parbench.record import RunRecord
from parbench.recordfile import RECORD, read_record
from parbench.store import Problem, Run, find_records, record_folders
from parbench.summary import Summary, summary_of

logger = logging.getLogger(__name__)

NAME = ".parbench-index.parquet"
# Fewer are read as quickly as a table of them.
_FEWEST = 200
# Changes with what a summary holds; another number makes the table anew.
_LAYOUT = b"1"
# More launches of a cell than this add nothing to a comparison but time.
MOST_LAUNCHES = 12

# Length and time of change of a record's file.
Stamp = tuple[int, int]
_Known = dict[str, tuple[Stamp, bytes]]


class Found(msgspec.Struct, frozen=True):
    """A record's folder and its summary."""

    folder: Path
    summary: Summary


def summaries(path: Path) -> tuple[list[Found], list[Problem]]:
    """Return a summary of every record under `path`, and what could not be read.

    Args:
        path: a record.json, the folder of a run, of a suite or of all results.

    Raises:
        UsageError: there is nothing at `path`.
        UnreadableError: `path` names one record, and that cannot be read.
    """
    if not path.exists():
        raise UsageError(f"there is no file or folder {str(path)!r}; give a record.json or a folder of results")
    if not path.is_dir() or (path / RECORD).is_file():
        records, problems = find_records(path)
        return [Found(path, summary_of(one)) for one in records], problems
    problems = []
    stamps = {folder: _stamp(folder) for folder in record_folders(path, problems)}
    known = _read(path) if len(stamps) >= _FEWEST else {}
    found, told = [], {}
    for folder, stamp in stamps.items():
        name = folder.relative_to(path).as_posix()
        try:
            summary, data = _summary(folder, stamp, known.get(name))
        except UnreadableError as error:
            problems.append(Problem(path=folder / RECORD, sentence=str(error)))
            continue
        told[name] = (stamp, data)
        found.append(Found(folder, summary))
    if len(stamps) >= _FEWEST and told != known:
        _write(path, told)
    return sorted(found, key=lambda one: (one.summary.id, one.folder)), problems


def newest_records(path: Path) -> tuple[list[RunRecord], list[Problem], list[str]]:
    """Return the records to compare under `path`: of each cell the newest launches of the software measured last.

    Returns:
        The records, what could not be read, and sentences on what was left out.

    Raises:
        UsageError: there is nothing at `path`.
        UnreadableError: `path` names one record, and that cannot be read.
    """
    runs, problems, notes = newest_runs(path)
    return [run.record for run in runs], problems, notes


def newest_runs(path: Path) -> tuple[list[Run], list[Problem], list[str]]:
    """Return the same as `newest_records`, each with its folder."""
    found, problems = summaries(path)
    cells: dict[tuple[str, str], list[Found]] = {}
    for one in found:
        cells.setdefault((one.summary.spec_id, one.summary.environment.fingerprint), []).append(one)
    kept: list[Found] = []
    for group in cells.values():
        software = group[-1].summary.environment.software
        kept += [one for one in group if one.summary.environment.software == software][-MOST_LAUNCHES:]
    left = len(found) - len(kept)
    why = f"older software, or more launches of a cell than the newest {MOST_LAUNCHES}"
    notes = [f"{left} of {len(found)} records under {path} are left out: {why}"] if left else []
    chosen = sorted(kept, key=lambda one: (one.summary.id, one.folder))
    return [Run(folder=_folder(one.folder), record=read_record(one.folder)) for one in chosen], problems, notes


def _folder(found: Path) -> Path:
    """Return the folder of a record, which may have been named itself."""
    return found if found.is_dir() else found.parent


def _summary(folder: Path, stamp: Stamp, known: tuple[Stamp, bytes] | None) -> tuple[Summary, bytes]:
    if known is not None and known[0] == stamp:
        try:
            return msgspec.msgpack.decode(known[1], type=Summary), known[1]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.debug("the index is wrong about %s: %s", folder, error)
    summary = summary_of(read_record(folder))
    return summary, msgspec.msgpack.encode(summary)


def _stamp(folder: Path) -> Stamp:
    try:
        status = (folder / RECORD).stat()
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_mtime_ns


def _read(folder: Path) -> _Known:
    """Return the table of `folder`, nothing where there is none; a damaged one is moved aside."""
    import pyarrow
    import pyarrow.parquet

    file = folder / NAME
    if not file.is_file():
        return {}
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            if (opened.schema_arrow.metadata or {}).get(b"parbench") != _LAYOUT:
                return {}
            columns: Mapping[str, Sequence[object]] = opened.read().to_pydict()
        rows = zip(*(columns[name] for name in ("path", "bytes", "mtime_ns", "summary")), strict=True)
        return {str(path): ((_int(size), _int(mtime)), _bytes(data)) for path, size, mtime, data in rows}
    except (OSError, ValueError, TypeError, KeyError, pyarrow.ArrowException) as error:
        logger.debug("%s is damaged: %s", file, error)
        try:
            file.replace(file.with_name(NAME + ".corrupt"))
        except OSError as failed:
            logger.debug("and cannot be moved aside: %s", failed)
        return {}


def _write(folder: Path, told: _Known) -> None:
    """Store the table; a folder that cannot be written only costs time."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "path": list(told),
            "bytes": [stamp[0] for stamp, _ in told.values()],
            "mtime_ns": [stamp[1] for stamp, _ in told.values()],
            "summary": pyarrow.array([data for _, data in told.values()], type=pyarrow.binary()),
        }
    ).replace_schema_metadata({b"parbench": _LAYOUT})
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    try:
        publish_file(Filesystem(), folder / NAME, sink.getvalue().to_pybytes())
    except OSError as error:
        logger.debug("the index of %s is not stored: %s", folder, error)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} is no summary")
    return value
