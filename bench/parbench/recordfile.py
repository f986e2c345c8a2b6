"""A record file is one RunRecord in strict JSON: no NaN goes in, and nothing but a whole record of ours comes out."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

import msgspec

from parbench.errors import UnreadableError
from parbench.record import SCHEMA_MAJOR, SCHEMA_MINOR, SCHEMA_NAME, RunRecord, Warned
from parbench.spec import RunSpec

RECORD = "record.json"
# A record of 100 000 rounds is about 30 MiB. What is larger is none, and is not parsed.
MAX_BYTES = 64 * 2**20
_MAX_SUITE_BYTES = 2**20

Parts = dict[str, msgspec.Raw]


class _Version(msgspec.Struct, frozen=True):
    """What a schema must say, read before anything else is believed."""

    name: str
    major: int
    minor: int


def encode_record(record: RunRecord) -> bytes:
    """Return `record` as indented UTF-8 JSON; what is not finite becomes null, and says so."""
    finite = {name: metric.finite() for name, metric in record.metrics.items()}
    lost: list[str] = []
    plain = _strict(msgspec.to_builtins(msgspec.structs.replace(record, metrics=finite)), "", lost)
    if lost and isinstance(plain, dict):
        said = Warned(
            code="not_finite",
            message=f"not finite, stored as null: {', '.join(lost[:8])}"
            + (f" and {len(lost) - 8} more" if lost[8:] else ""),
        )
        plain["warnings"] = [*msgspec.to_builtins(record.warnings), msgspec.to_builtins(said)]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def read_record(path: Path | str) -> RunRecord:
    """Read a record from its file or its folder; nothing in it is imported, unpickled or evaluated.

    Unknown fields of a newer minor version are ignored. Of a key given twice the last one counts.

    Raises:
        UnreadableError: it is missing, truncated, foreign, too large or newer.
    """
    path = Path(path)
    file = path / RECORD if path.is_dir() else path
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableError(f"{file}: not a regular file")
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return decode_record(data, str(file))


def decode_record(data: bytes, name: str = "record") -> RunRecord:
    """Return the record that `data` holds.

    Args:
        data: the bytes of a record file.
        name: what to call it in errors.

    Raises:
        UnreadableError: it is truncated, foreign, too large or newer.
    """
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"{name}: larger than {MAX_BYTES // 2**20} MiB, so not a parbench result")
    try:
        return _decode(data, name)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{name}: not a whole parbench result: {error}") from error
    except msgspec.DecodeError as error:
        where = f" at byte {len(data)}" if "truncated" in str(error) else ""
        raise UnreadableError(f"{name}: damaged: {error}{where}") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{name}: damaged: not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise UnreadableError(f"{name}: not a parbench result: nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise UnreadableError(f"{name}: damaged: {error}") from error


def _decode(data: bytes, name: str) -> RunRecord:
    if not data.lstrip(b" \t\r\n").startswith(b"{"):
        raise UnreadableError(f"{name}: not a parbench result (no schema: not a JSON object, from byte 0)")
    data.decode("utf-8")
    # Parts stay raw bytes until it is known whose they are: foreign data of any shape costs its own size only.
    parts = msgspec.json.decode(data, type=Parts)
    version = _version(parts, name)
    if version.minor > SCHEMA_MINOR:
        parts["spec"] = _known_spec(parts.get("spec", msgspec.Raw(b"null")))
    suite = parts.get("resolved_suite")
    if suite is not None and len(memoryview(suite)) > _MAX_SUITE_BYTES:
        raise UnreadableError(f"{name}: its resolved suite is larger than {_MAX_SUITE_BYTES // 2**20} MiB")
    try:
        return msgspec.json.decode(msgspec.json.encode(_without_nulls(parts)), type=RunRecord)
    except msgspec.ValidationError as error:
        if version.minor <= SCHEMA_MINOR:
            raise
        newer = f"{version.major}.{version.minor} (this is {SCHEMA_MAJOR}.{SCHEMA_MINOR}): upgrade parbench"
        raise UnreadableError(f"{name}: {error}; written by the newer version {newer}") from error


def _version(parts: Parts, name: str) -> _Version:
    if "schema" not in parts:
        raise UnreadableError(f"{name}: not a parbench result (no schema)")
    try:
        version = msgspec.json.decode(parts["schema"], type=_Version)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{name}: not a parbench result (no schema of ours: {error})") from error
    if version.name != SCHEMA_NAME:
        raise UnreadableError(
            f"{name}: not a parbench result (its schema is {version.name[:80]!r}, not {SCHEMA_NAME!r})"
        )
    if version.major > SCHEMA_MAJOR:
        this = f"this is {SCHEMA_MAJOR}.{SCHEMA_MINOR}: upgrade parbench"
        raise UnreadableError(f"{name}: written by a newer version ({version.major}.{version.minor}); {this}")
    if version.major < 1 or version.minor < 0:
        raise UnreadableError(f"{name}: there never was a schema {version.major}.{version.minor}")
    return version


def _known_spec(spec: msgspec.Raw) -> msgspec.Raw:
    """Drop fields of the spec that a newer minor version added."""
    known = {field.encode_name for field in msgspec.structs.fields(RunSpec)}
    kept = {key: value for key, value in msgspec.json.decode(spec, type=Parts).items() if key in known}
    return msgspec.Raw(msgspec.json.encode(kept))


def _without_nulls(parts: Parts) -> Parts:
    """Leave out numbers that were not finite when they were written: plain maps and rounds have no place for None."""
    kept = {key: part for key, part in parts.items() if not _is_null(part) or key not in ("launch", "rounds")}
    for key in ("launch", "breakdown"):
        # null itself means that there is no breakdown, which an empty one does not say.
        if key in kept and not _is_null(kept[key]) and b"null" in bytes(kept[key]):
            entries = msgspec.json.decode(kept[key], type=dict[str, msgspec.Raw])
            kept[key] = _raw({name: value for name, value in entries.items() if not _is_null(value)})
    if "rounds" in kept and b"null" in bytes(kept["rounds"]):
        rounds = msgspec.json.decode(kept["rounds"], type=list[msgspec.Raw])
        kept["rounds"] = _raw([value for value in rounds if b"null" not in bytes(value)])
    if "warm_up" in kept and b"null" in bytes(kept["warm_up"]):
        warm_up = msgspec.json.decode(kept["warm_up"], type=Parts | None) or {}
        if any(_is_null(warm_up[name]) for name in ("wall_s", "first_step_s") if name in warm_up):
            kept["warm_up"] = msgspec.Raw(b"null")
    return kept


def _is_null(part: msgspec.Raw) -> bool:
    return bytes(part).strip() == b"null"  # a Raw never equals bytes


def _raw(value: dict[str, msgspec.Raw] | list[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _strict(value: object, at: str, lost: list[str]) -> object:
    """Return plain data that strict UTF-8 JSON can hold, and note in `lost` where a number could not be kept."""
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(f"{at} ({value})")
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_key(k): _strict(v, f"{at}.{k}".lstrip("."), lost) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v, f"{at}[{k}]", lost) for k, v in enumerate(value)]
    return value


def _key(key: object) -> str:
    return str(key).encode("utf-8", "backslashreplace").decode("utf-8")
