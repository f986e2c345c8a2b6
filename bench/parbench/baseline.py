"""A baseline is a history kept in a file: what repeated runs of unchanged code measured on one machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from parbench.benchfile import read_benchmarks
from parbench.errors import CheckFailed, UnreadableError, UsageError
from parbench.history import SCHEMA, History, histories, merged
from parbench.index import summaries
from parbench.naming import new_run_id
from parbench.store import Store

PREFIX = "baseline-"
_MAX_BYTES = 1 << 26


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline file: the history and the hash of its canonical JSON, so that no damage goes unseen."""

    history: History
    sha256: str


def write_baseline(history: History, folder: Path) -> Path:
    """Store `history` as a new file in `folder` and return its path; older baselines stay.

    Raises:
        StoreError: it could not be stored.
    """
    kept = msgspec.structs.replace(history, path="")
    data = msgspec.json.format(msgspec.json.encode(_File(history=kept, sha256=_digest(kept))), indent=1)
    name = f"{PREFIX}{history.environment.fingerprint}-{new_run_id()}.json"
    return Store(folder).write_document(name, data + b"\n")


def read_baseline(path: Path, machine: str) -> History:
    """Return the baseline at `path` for `machine`.

    Args:
        path: a baseline file, a folder of them (the newest of this machine counts), or a folder of results.
        machine: fingerprint of the machine that was measured now.

    Raises:
        UsageError: there is nothing of the kind.
        CheckFailed: it is of another machine.
        UnreadableError: it is damaged, foreign or newer; an older one beside it is not taken instead.
    """
    if not path.exists():
        raise UsageError(f"there is no baseline {str(path)!r}; make one with parbench baseline record PATH")
    files = sorted(path.glob(f"{PREFIX}*.json")) if path.is_dir() else []
    ours = [file for file in files if file.name.startswith(f"{PREFIX}{machine}-")]
    found = [read_file((ours or files)[-1])] if files else stored_histories(path)
    if not found:
        raise UsageError(f"no records in the baseline {str(path)!r}; measure the suite several times first")
    if same := [one for one in found if one.environment.fingerprint == machine]:
        return same[-1]
    other = found[-1].environment
    raise CheckFailed(
        f"the baseline {str(path)!r} is of another machine ({other.facts.get('cpu') or 'unknown'}, fingerprint "
        f"{other.fingerprint}, here {machine}): times of two machines are not compared; record a baseline here"
    )


def stored_histories(path: Path) -> list[History]:
    """Return the history of each machine at `path`, the one that measured last at the end.

    Args:
        path: a baseline, results of parbench, or files of pytest-benchmark; a file or a folder.

    Raises:
        UsageError: there is nothing at `path`.
        UnreadableError: something there cannot be read: what is left would be taken for all.
    """
    if path.is_file() and (kind := _kind(path)) != "record":
        return [read_file(path)] if kind == "baseline" else read_benchmarks(path)
    found, problems = summaries(path)
    if problems:
        raise UnreadableError(f"{len(problems)} records cannot be read: {problems[0].sentence}; remove them first")
    if found:
        return histories([one.summary for one in found], str(path))
    files = [file for file in sorted(path.rglob("*.json")) if _kind(file) == "benchmarks"]
    machines: dict[str, list[History]] = {}
    for one in (history for file in files for history in read_benchmarks(file)):
        machines.setdefault(one.environment.fingerprint, []).append(one)
    return sorted((merged(group) for group in machines.values()), key=lambda one: one.runs[-1])


def _kind(path: Path) -> str:
    """Return what a JSON file says it is: a baseline, benchmarks of pytest, or, as far as is known here, a record."""
    try:
        keys = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw]) if _small(path) else {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A damaged baseline is known by its name only.
        return "baseline" if path.name.startswith(PREFIX) else "record"
    return "baseline" if "history" in keys else "benchmarks" if "benchmarks" in keys else "record"


def _small(path: Path) -> bool:
    return path.stat().st_size <= _MAX_BYTES


def read_file(path: Path) -> History:
    """Return the baseline in one file.

    Raises:
        UnreadableError: it is missing, damaged, foreign or newer.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise UnreadableError(f"{path}: larger than {_MAX_BYTES >> 20} MiB, so no baseline of parbench")
    try:
        # Who wrote it is known before its content is believed.
        _check_schema(path, data)
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"{path}: damaged, or no baseline of parbench: {error}; record a new one") from error
    if found.sha256 != _digest(found.history):
        raise UnreadableError(f"{path}: damaged: its content is not what was written; record a new one")
    return msgspec.structs.replace(found.history, path=str(path))


def _check_schema(path: Path, data: bytes) -> None:
    whole = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    history = msgspec.json.decode(whole.get("history", msgspec.Raw(b"{}")), type=dict[str, msgspec.Raw])
    schema = msgspec.json.decode(history.get("schema", msgspec.Raw(b"{}")), type=dict[str, str | int])
    if schema.get("name") != SCHEMA.name:
        raise UnreadableError(f"{path}: not a baseline of parbench (no schema of ours); give one that it recorded")
    major, minor = schema.get("major"), schema.get("minor")
    if not isinstance(major, int) or major > SCHEMA.major:
        raise UnreadableError(
            f"{path}: written by a newer version ({major}.{minor}; this is {SCHEMA.major}.{SCHEMA.minor}): upgrade "
            "parbench"
        )


def _digest(history: History) -> str:
    return hashlib.sha256(msgspec.json.encode(history, order="deterministic")).hexdigest()
