"""A baseline is a history kept in a file: what repeated runs of unchanged code measured on one machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from parbench.errors import CheckFailed, UnreadableError, UsageError
from parbench.history import SCHEMA, History, histories
from parbench.naming import new_run_id
from parbench.store import Store, find_records

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
    if not path.is_dir():
        found = [read_file(path)]
    elif files := sorted(path.glob(f"{PREFIX}*.json")):
        ours = [file for file in files if file.name.startswith(f"{PREFIX}{machine}-")]
        found = [read_file((ours or files)[-1])]
    else:
        records, problems = find_records(path)
        if problems:
            raise UnreadableError(f"a record of the baseline cannot be read: {problems[0].sentence}; mend or remove it")
        found = histories(records, str(path))
    if not found:
        raise UsageError(f"no records in the baseline {str(path)!r}; measure the suite several times first")
    if same := [one for one in found if one.environment.fingerprint == machine]:
        return same[-1]
    other = found[-1].environment
    raise CheckFailed(
        f"the baseline {str(path)!r} is of another machine ({other.facts.get('cpu') or 'unknown'}, fingerprint "
        f"{other.fingerprint}, here {machine}): times of two machines are not compared; record a baseline here"
    )


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
