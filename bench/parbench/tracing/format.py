"""The Trace Event Format, as far as parbench writes and reads it: what each phase of event must have.

Source: "Trace Event Format" (the document of Chrome's tracing project): sections on duration, instant, counter, flow,
async and metadata events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from parbench.tracing.chromefile import Event

_PHASES = frozenset("XBEiICstfbneMPNODSTFpvRcaN()")
_FLOWS = frozenset("stf")
_ASYNC = frozenset("bne")
_METADATA = frozenset({"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"})
# What rounding times to nanoseconds may do to two events that touch.
_ROUNDED_US = 0.002


def problems(events: Sequence[Event]) -> list[str]:
    """Return what breaks the format, in sentences; nothing where a viewer can show all of it."""
    found = [sentence for k, event in enumerate(events) for sentence in wrong(event, f"event {k}")]
    return [*found, *_flows(events)]


def wrong(event: Event, place: str = "event") -> Iterable[str]:
    """Yield what one event lacks, in sentences."""
    where = f"{place} ({event.name[:60]!r})"
    if event.ph not in _PHASES or len(event.ph) != 1:
        yield f"{where}: no phase {event.ph!r}"
        return
    if not math.isfinite(event.ts) or not math.isfinite(event.dur):
        yield f"{where}: its time is not finite"
    if event.ph == "X" and event.dur < 0:
        yield f"{where}: it ends before it begins"
    if not event.name and event.ph not in "E":
        yield f"{where}: it has no name"
    if event.ph in _FLOWS | _ASYNC and (event.id is None or not event.cat):
        yield f"{where}: a flow or async event needs an id and a category"
    if event.ph == "i" and event.s not in (None, "g", "p", "t"):
        yield f"{where}: no scope {event.s!r}"
    if event.ph == "C" and not _numbers(event.args):
        yield f"{where}: a counter needs numbers as arguments"
    if event.ph == "M" and event.name not in _METADATA:
        yield f"{where}: no metadata of this name"


def _numbers(raw: msgspec.Raw) -> bool:
    try:
        return bool(msgspec.json.decode(raw, type=dict[str, float]))
    except msgspec.DecodeError:
        return False


def _flows(events: Sequence[Event]) -> Iterable[str]:
    """Return flows that lead from nothing, or back in time."""
    begun = {(event.cat, event.name, event.id): event.ts for event in events if event.ph == "s"}
    for event in events:
        if event.ph == "f":
            start = begun.get((event.cat, event.name, event.id))
            if start is not None and event.ts < start - _ROUNDED_US and event.cat == "side":
                yield f"arrow {event.id}: it ends before it begins"
