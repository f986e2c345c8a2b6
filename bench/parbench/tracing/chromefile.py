"""A Chrome file is a trace in the Trace Event Format, as torch.profiler exports it: one JSON object, often compressed.

Files come from anybody's job: they may be cut short, foreign, huge, or hold names that were never escaped. What can be
read is read, and what cannot is said.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from pathlib import Path

import msgspec

from parbench.errors import UnreadableError

# Decompressed. What is larger cannot be held as events in the memory of a usual machine.
MAX_BYTES = 2**30
_PIECE_BYTES = 2**22
_NOTHING, _NULL = msgspec.Raw(b"{}"), msgspec.Raw(b"null")


class Event(msgspec.Struct, frozen=True):
    """One event; times are in microseconds on the trace's own clock. `args` stays text until it is asked for."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    id: int | str | None = None
    bp: str | None = None
    s: str | None = None
    args: msgspec.Raw = _NOTHING


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds.

    Attributes:
        events: those that are events, in the file's order.
        distributed: torch's "distributedInfo".
        host_name: as the profiler knew it.
        base_ns: what has to be added to times to get those of the epoch.
        own: what parbench added; None in a trace that it did not write.
        size_bytes: of the file, decompressed.
        notes: what could not be read, in sentences.
    """

    events: list[Event]
    distributed: msgspec.Raw = _NOTHING
    host_name: str = ""
    base_ns: int = 0
    own: msgspec.Raw | None = None
    size_bytes: int = 0
    notes: tuple[str, ...] = ()


class _Whole(msgspec.Struct, rename={"events": "traceEvents", "base_ns": "baseTimeNanoseconds", "own": "parbench"}):
    events: msgspec.Raw = _NULL
    distributedInfo: msgspec.Raw = _NOTHING  # noqa: N815
    host_name: object = ""
    base_ns: object = 0
    own: msgspec.Raw = _NULL


def load(path: Path) -> Document:
    """Read a file.

    Raises:
        UnreadableError: it cannot be read, is too large, is damaged, or is no trace.
    """
    return parsed(_bytes(path), str(path))


def parsed(data: bytes, path: str) -> Document:
    """Return what the bytes of a file hold, unpacked; `path` is its name in errors.

    Raises:
        UnreadableError: they are damaged or no trace.
    """
    notes: list[str] = []
    try:
        whole = _decoded(data)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{path}: no trace in Chrome's format: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strict:
        data, whole = _leniently(data, strict, path, notes)
    if not bytes(memoryview(whole.events)[:1]) == b"[":
        raise UnreadableError(f"{path}: no trace in Chrome's format (no list traceEvents)")
    return Document(
        events=_events(whole.events, path, notes),
        distributed=whole.distributedInfo,
        host_name=whole.host_name if isinstance(whole.host_name, str) else "",
        base_ns=whole.base_ns if isinstance(whole.base_ns, int) else 0,
        own=None if bytes(whole.own) == b"null" else whole.own,
        size_bytes=len(data),
        notes=tuple(notes),
    )


def _bytes(path: Path) -> bytes:
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableError(f"{path}: not a regular file")
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            pieces, size = [], 0
            source = gzip.GzipFile(fileobj=stream) if packed else stream
            # In pieces: a few kilobytes can be packed from gigabytes.
            while piece := source.read(_PIECE_BYTES):
                size += len(piece)
                if size > MAX_BYTES:
                    raise UnreadableError(
                        f"{path}: larger than {MAX_BYTES // 2**20} MiB unpacked; trace fewer steps "
                        "(torch.profiler.schedule), or without stacks and shapes"
                    )
                pieces.append(piece)
    except EOFError as error:
        raise UnreadableError(f"{path}: damaged: cut short, the compressed data ends before its end") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableError(f"{path}: damaged: {error}") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return b"".join(pieces)


def _decoded(data: bytes) -> _Whole:
    if data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"["):  # the format allows the bare list
        return _Whole(events=msgspec.Raw(data.strip(b" \t\r\n\xef\xbb\xbf")))
    return msgspec.json.decode(data, type=_Whole)


def _leniently(data: bytes, why: Exception, path: str, notes: list[str]) -> tuple[bytes, _Whole]:
    """Read what is nearly JSON: raw control characters in names, bytes that are no UTF-8, NaN."""
    try:
        plain = json.loads(data.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        repaired = json.dumps(plain, allow_nan=False).encode()
        found = _decoded(repaired)
    except (ValueError, RecursionError) as error:
        # In a file that ends in the middle every way of reading fails at its end.
        cut = "cut short, it ends in the middle" if data.rstrip()[-1:] not in (b"}", b"]") else f"no JSON: {why}"
        raise UnreadableError(f"{path}: damaged: {cut} (byte {len(data)})") from error
    notes.append(f"not strict JSON ({why}): read leniently, some names may have changed")
    return repaired, found


def _events(raw: msgspec.Raw, path: str, notes: list[str]) -> list[Event]:
    try:
        return msgspec.json.decode(raw, type=list[Event])
    except (msgspec.DecodeError, RecursionError):
        pass
    found, bad = [], 0
    # One that is none must not cost all others; this takes longer.
    for one in _each(raw, path):
        try:
            found.append(msgspec.json.decode(one, type=Event))
        except (msgspec.DecodeError, RecursionError):
            bad += 1
    if bad:
        notes.append(f"{bad} of {bad + len(found)} events have no readable name, time or place and are left out")
    return found


def _each(raw: msgspec.Raw, path: str) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableError(f"{path}: damaged: its list of events is cut short or no JSON: {error}") from error
