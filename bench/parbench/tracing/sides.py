"""Slices show the collectives of a rank side by side in lanes, and arrows lead from one rank's side to the others'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from parbench.tracing.matching import Key
from parbench.tracing.spans import Collective, RankTrace

_FIRST_LANE = 1


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of a rank as a bar in a lane; bars of one lane do not overlap."""

    rank: int
    lane: int
    key: Key
    one: Collective
    start_ns: int
    end_ns: int

    def event(self, begin_ns: int) -> dict[str, object]:
        """Return it as an event of Chrome's format, times counted from `begin_ns`."""
        said = {name: getattr(self.one, name) for name in self.one.__struct_fields__ if name != "issued_ns"}
        issued = self.one.issued_ns
        said["issued_us_before"] = None if issued is None else (self.start_ns - issued) / 1000
        return {
            "ph": "X",
            "name": f"{self.one.op} {self.one.axis}" if self.one.axis else self.one.op,
            "cat": "collective",
            "pid": self.rank,
            "tid": self.lane,
            "ts": (self.start_ns - begin_ns) / 1000,
            "dur": (self.end_ns - self.start_ns) / 1000,
            "args": {name: value for name, value in said.items() if value not in (None, ()) and name[-3:] != "_ns"},
        }


def slices(trace: RankTrace, keys: Sequence[Key]) -> list[Slice]:
    """Return the collectives of a rank that were seen to run, each in the first lane that is free."""
    free: list[int] = []
    found = []
    timed = [(key, one) for key, one in zip(keys, trace.collectives, strict=True) if one.end_ns is not None]
    for key, one in sorted(timed, key=lambda pair: pair[1].start_ns or 0):
        start, end = one.start_ns or 0, one.end_ns or 0
        lane = next((k for k, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        found.append(
            Slice(rank=trace.rank, lane=_FIRST_LANE + lane, key=key, one=one, start_ns=start, end_ns=max(start, end))
        )
    return found


def arrows(
    traces: Sequence[RankTrace], lanes: Mapping[int, Sequence[Slice]], begin_ns: int
) -> Iterator[dict[str, object]]:
    """Yield names of the lanes, and arrows: from the last rank to come to each other one, from a send to its recv."""
    sides: dict[Key, list[Slice]] = {}
    for trace in traces:
        for lane in sorted({one.lane for one in lanes[trace.rank]}):
            name = "collectives" if lane == _FIRST_LANE else f"collectives {lane - _FIRST_LANE + 1}"
            for fact, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": lane})):
                yield {"ph": "M", "name": fact, "pid": trace.rank, "tid": lane, "ts": 0, "args": args}
        for one in lanes[trace.rank]:
            sides.setdefault(one.key, []).append(one)
    number = 0
    for found in sides.values():
        sender = next((one for one in found if one.one.op == "send"), None)
        last = sender or max(found, key=lambda one: one.start_ns)
        for other in found:
            if other is last:
                continue
            # An arrow ends inside the bar that it leads to, and not before it begins.
            end = max(last.start_ns, other.start_ns, other.end_ns - 1 if sender else 0)
            if end > other.end_ns:
                continue
            number += 1
            shared = {"name": "side", "cat": "side", "id": f"side {number}"}
            yield {"ph": "s", **shared, "pid": last.rank, "tid": last.lane, "ts": (last.start_ns - begin_ns) / 1000}
            yield {
                "ph": "f",
                "bp": "e",
                **shared,
                "pid": other.rank,
                "tid": other.lane,
                "ts": (end - begin_ns) / 1000,
            }
