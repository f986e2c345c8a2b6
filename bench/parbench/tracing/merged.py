"""A merged trace holds all ranks on one clock: a process per rank, named by its place in the mesh, with all its tracks.

process  rank 0 (dp 0, tp 0)
           collectives         what was in flight, with arrows to the other ranks' sides
           ...                 the threads and streams as the profiler saw them
           counters            bytes sent, memory, and what else the trace counts
process  rank 1 (dp 0, tp 1)
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from parbench.errors import StoreError
from parbench.record import Schema
from parbench.tracing.chromefile import Document, Event, load, parsed
from parbench.tracing.clocks import Aligned
from parbench.tracing.counters import bytes_sent, memory, readings
from parbench.tracing.format import problems, wrong
from parbench.tracing.header import MERGED, Header, header
from parbench.tracing.matching import matched
from parbench.tracing.names import kind_of
from parbench.tracing.sides import arrows, slices
from parbench.tracing.spans import RankTrace

SCHEMA = Schema(name=MERGED, major=1, minor=0)
# Unpacked; viewers in a browser take no more, and some take less.
MOST_BYTES = 500 * 2**20
# A rank's collectives come first; the rest follows in the order of the profiler.
_COLLECTIVES = 1
_Written = dict[str, object]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A merged trace.

    Attributes:
        data: the file.
        events: in it.
        size_bytes: unpacked.
        notes: what was left out, in sentences.
    """

    data: bytes
    events: int
    size_bytes: int
    notes: tuple[str, ...]


def write_merged(files: Mapping[int, Path], found: Aligned, *, packed: bool, most_bytes: int = MOST_BYTES) -> Merged:
    """Return one file of all ranks, which was read again and checked.

    Args:
        files: rank -> its file.
        found: the same traces on one clock.
        packed: whether it is compressed.
        most_bytes: unpacked; where there is more, the shortest operators are left out.

    Raises:
        UnreadableError: a file is not what it was.
        StoreError: what would be written breaks the format.
    """
    begin = min((span.start_ns for one in found.traces for span in one.spans), default=0)
    sink = io.BytesIO()
    out = gzip.GzipFile(fileobj=sink, mode="wb", mtime=0, compresslevel=5) if packed else sink
    notes: list[str] = []
    size = out.write(b'{"traceEvents":[\n')
    count = 0
    for event in _events(files, found, begin, most_bytes, notes):
        size += out.write((b"" if count == 0 else b",\n") + msgspec.json.encode(event))
        count += 1
    size += out.write(b'\n],"displayTimeUnit":"ms","parbench":' + msgspec.json.encode(_facts(found)) + b"}\n")
    if packed:
        out.close()
    data = sink.getvalue()
    again = parsed(gzip.decompress(data) if packed else data, "the merged trace")
    broken = problems(again.events)
    if len(again.events) != count or broken:
        raise StoreError(f"the merged trace breaks the format: {(broken or ['events are missing'])[0]}; report this")
    return Merged(data=data, events=count, size_bytes=size, notes=tuple(notes))


def _facts(found: Aligned) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "clocks": found.how,
        "uncertainty_ns": found.uncertainty_ns,
        "offsets_ns": {str(rank): offset for rank, offset in found.offsets_ns.items()},
    }


def _events(
    files: Mapping[int, Path], found: Aligned, begin_ns: int, most_bytes: int, notes: list[str]
) -> Iterator[_Written]:
    keys = matched(found.traces).keys
    lanes = {one.rank: slices(one, keys[one.rank]) for one in found.traces}
    for trace in found.traces:
        document = load(files[trace.rank])
        whose = header(document, files[trace.rank])
        shift = found.offsets_ns[trace.rank] - begin_ns
        kept = _bounded(document, most_bytes // len(found.traces), trace.rank, notes)
        tracks = _Tracks(trace)
        yield from tracks.begin()
        for event in kept:
            yield from _moved(event, whose, shift, tracks)
        for one in lanes[trace.rank]:
            yield one.event(begin_ns)
        yield from bytes_sent(trace, begin_ns)
        yield from readings(whose.own, trace.rank, shift)
        yield from tracks.end()
    yield from arrows(found.traces, lanes, begin_ns)


def _bounded(document: Document, most_bytes: int, rank: int, notes: list[str]) -> Iterable[Event]:
    """Leave out what breaks the format, and the shortest operators of a trace that is too large."""
    sound = [event for event in document.events if event.ph == "M" or not any(wrong(event))]
    if len(sound) < len(document.events):
        notes.append(f"rank {rank}: {len(document.events) - len(sound)} events break the format and are left out")
    if document.size_bytes <= most_bytes:
        return sound
    operators = sorted(event.dur for event in sound if event.cat == "cpu_op")
    kept = int(len(operators) * most_bytes / document.size_bytes)
    least = operators[-kept - 1] if kept < len(operators) else 0.0
    found = [event for event in sound if event.cat != "cpu_op" or event.dur > least]
    notes.append(
        f"rank {rank}: {len(sound) - len(found)} operators of at most {least:.3g} us are left out, to stay "
        f"under {most_bytes / 2**20:.0f} MiB"
    )
    return found


class _Tracks:
    """The processes and threads of one rank, renumbered: those of several hosts may have the same numbers."""

    def __init__(self, trace: RankTrace) -> None:
        self._rank = trace.rank
        place = ", ".join(f"{axis} {k}" for axis, k in trace.coordinate.items())
        self._title = f"rank {trace.rank}{f' ({place})' if place else ''}"
        self._threads: dict[tuple[int | str, int | str], int] = {}
        self._names: dict[tuple[int | str, int | str], str] = {}
        self.pid = trace.rank

    def begin(self) -> Iterator[_Written]:
        yield from (
            self._fact("process_name", 0, {"name": self._title}),
            self._fact("process_sort_index", 0, {"sort_index": self._rank}),
        )

    def of(self, event: Event) -> int:
        """Return the number of an event's track."""
        key = (event.pid, event.tid)
        return self._threads.setdefault(key, _COLLECTIVES + 100 + len(self._threads))

    def name(self, event: Event) -> None:
        """Keep the name that a metadata event gives to a track."""
        said = _Named.of(event)
        if event.name == "thread_name" and said:
            self._names[event.pid, event.tid] = said

    def end(self) -> Iterator[_Written]:
        for key, number in self._threads.items():
            name = self._names.get(key, f"{key[0]} {key[1]}")
            yield self._fact("thread_name", number, {"name": name})
            yield self._fact("thread_sort_index", number, {"sort_index": number})

    def _fact(self, name: str, tid: int, args: dict[str, object]) -> _Written:
        return {"ph": "M", "name": name, "pid": self.pid, "tid": tid, "ts": 0, "args": args}


class _Named(msgspec.Struct, frozen=True):
    name: object = None

    @staticmethod
    def of(event: Event) -> str | None:
        try:
            name = msgspec.json.decode(event.args, type=_Named).name
        except msgspec.DecodeError:
            return None
        return name if isinstance(name, str) else None


def _moved(event: Event, whose: Header, shift_ns: int, tracks: _Tracks) -> Iterator[_Written]:
    """Yield an event of a rank's own file on the common clock and on its renumbered track."""
    if event.ph == "M":
        tracks.name(event)
        return
    if event.ph not in ("X", "i", "I", "C", "s", "t", "f") or event.name.startswith("Record Window End"):
        return
    # What gloo carries out is in the lanes of collectives; where it begins it crosses what its thread does next.
    if event.cat in ("cpu_op", "user_annotation") and kind_of(event.name, event.cat) == "collective":
        return
    found: _Written = {
        "ph": "i" if event.ph == "I" else event.ph,
        "name": event.name,
        "cat": event.cat or "trace",
        "pid": tracks.pid,
        "tid": tracks.of(event),
        "ts": (whose.ns(event.ts) + shift_ns) / 1000,
        "args": event.args,
    }
    if event.ph == "X":
        found["dur"] = round(event.dur * 1000) / 1000
    if event.ph in ("i", "I"):
        found["s"] = event.s if event.s in ("g", "p", "t") else "t"
    if event.ph in ("s", "t", "f"):
        if event.id is None:
            return
        # Ranks number their own arrows alike.
        found["id"] = f"{tracks.pid}/{event.id}"
        if event.ph == "f":
            found["bp"] = "e"
    yield found
    if event.ph in ("i", "I") and event.name == "[memory]":
        yield from memory(event, found)
