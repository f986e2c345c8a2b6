"""Crossings are events that begin inside another one of their thread and end after it: viewers misplace them."""

from collections import defaultdict
from collections.abc import Iterable

from parbench.tracing.chromefile import Event

# What rounding times to nanoseconds may do to two events that touch.
_ROUNDED_US = 0.002


def crossings(events: Iterable[Event]) -> list[str]:
    """Return complete events that begin inside another one of their thread and end after it; viewers misplace those."""
    tracks: dict[tuple[int | str, int | str], list[Event]] = defaultdict(list)
    for event in events:
        if event.ph == "X":
            tracks[event.pid, event.tid].append(event)
    found = []
    for (pid, tid), mine in tracks.items():
        open_: list[Event] = []
        for event in sorted(mine, key=lambda one: (one.ts, -one.dur)):
            while open_ and open_[-1].ts + open_[-1].dur <= event.ts + _ROUNDED_US:
                open_.pop()
            if open_ and event.ts + event.dur > open_[-1].ts + open_[-1].dur + _ROUNDED_US:
                found.append(f"on {pid}/{tid} {event.name!r} begins inside {open_[-1].name!r} and ends after it")
                continue
            open_.append(event)
    return found
