"""A folder of traces holds one file per rank: that of a stored run, or what a user's own job has left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from parbench.errors import UnreadableError, UsageError
from parbench.tracing.chrome import read
from parbench.tracing.spans import RankTrace

RECORD, TRACE = "record.json", "trace"
_ENDINGS = (".json", ".json.gz")


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """Traces and where they are.

    Attributes:
        files: rank -> its file.
        traces: by rank, each on its own clock.
        problems: a sentence for each file that could not be read and was left out.
    """

    files: dict[int, Path]
    traces: list[RankTrace]
    problems: list[str]


def opened(path: Path) -> Folder:
    """Read all traces at `path`.

    Args:
        path: a run's folder, its record or a folder with no other run, a folder with a trace per rank, or one trace.

    Raises:
        UsageError: there is nothing at `path`, it holds no traces, or two of one rank.
        UnreadableError: none of them can be read.
    """
    files: dict[int, Path] = {}
    traces: list[RankTrace] = []
    problems: list[str] = []
    for file in _files(path):
        try:
            trace = read(file)
        except UnreadableError as error:
            problems.append(str(error))
            continue
        if trace.rank in files:
            raise UsageError(
                f"{str(files[trace.rank])!r} and {str(file)!r} are both of rank {trace.rank}; give a folder with one "
                "trace per rank (one profiled window)"
            )
        files[trace.rank] = file
        traces.append(trace)
    if not traces:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise UnreadableError(f"{problems[0]}{more}")
    return Folder(files=files, traces=sorted(traces, key=lambda one: one.rank), problems=problems)


def _files(path: Path) -> Sequence[Path]:
    if not path.exists():
        raise UsageError(f"there is no file or folder {str(path)!r}; give a run's folder, or a folder of traces")
    if path.is_file() and path.name != RECORD:
        return [path]
    folder = path if path.is_dir() else path.parent
    if (folder / RECORD).is_file():
        # PyTorch's execution traces, which may lie beside them, are none.
        inside = [one for one in _traces_in(folder / TRACE) if one.name.startswith("rank")]
        if not inside:
            raise UsageError(f"the run in {str(folder)!r} has no traces; run it again without --no-trace")
        return inside
    runs = sorted(str(one.parent) for one in (*folder.glob(f"*/{RECORD}"), *folder.glob(f"*/*/{RECORD}")))
    if len(runs) == 1:
        return _files(Path(runs[0]))
    if runs:
        raise UsageError(f"{str(folder)!r} holds {len(runs)} runs; give one of them, such as {runs[0]!r}")
    found = _traces_in(folder)
    if not found:
        advice = "give a run's folder, or one with a trace per rank"
        raise UsageError(f"no traces (*.json, *.json.gz) in {str(folder)!r}; {advice}")
    return found


def _traces_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    # By length first: rank2 before rank10.
    found = [one for one in folder.iterdir() if one.name.endswith(_ENDINGS) and not one.name.startswith(".")]
    return sorted((one for one in found if one.is_file()), key=lambda one: (len(one.name), one.name))
