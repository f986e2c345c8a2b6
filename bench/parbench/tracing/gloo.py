"""Collectives over gloo: what issued them lies on the thread that steps, what carried them out on gloo's own threads.

    thread that steps   |c10d::allreduce_|...|c10d::allreduce_|
    gloo's threads            |---gloo:all_reduce---|   |--gloo:all_reduce--|

gloo does not say which call an event belongs to. Each group has threads of its own, which take calls in the order of
issue; so threads are given to groups such that as many calls as can be find an event that begins after them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from parbench.tracing.names import op_of
from parbench.tracing.spans import Collective, Span

# Ways of giving threads to groups that are tried; two threads a group, up to three groups.
_MOST_WAYS = 3**6
_DECIDING = 200  # events
_MESSAGES = frozenset({"send", "recv"})


def timed(collectives: Sequence[Collective], events: Sequence[Span]) -> tuple[list[Collective], int]:
    """Return the collectives with the times of their events, and how many events found none.

    Args:
        collectives: as they were issued, in order.
        events: `gloo:*`, in order of their start.
    """
    found = dict(_messages(collectives, events))
    # Those of parbench's own sockets have their times already.
    rest = [k for k, one in enumerate(collectives) if one.op not in _MESSAGES and one.end_ns is None]
    others = [event for event in events if op_of(event.name) not in _MESSAGES]
    found |= _best(collectives, rest, others)
    done = [_with(one, found[k]) if k in found else one for k, one in enumerate(collectives)]
    return done, len(events) - len(found)


def _with(one: Collective, event: Span) -> Collective:
    dtype = one.dtype or event.args.get("dtype")
    return msgspec.structs.replace(
        one,
        start_ns=event.start_ns,
        end_ns=event.end_ns,
        shown_as=event.name,
        dtype=dtype if isinstance(dtype, str) else None,
    )


def _messages(collectives: Sequence[Collective], events: Sequence[Span]) -> Iterable[tuple[int, Span]]:
    """Yield messages with their events, which begin in the call: in order, by operation."""
    for op in _MESSAGES:
        queue = iter([event for event in events if op_of(event.name) == op])
        event = next(queue, None)
        for k, one in enumerate(collectives):
            if one.op != op:
                continue
            while event is not None and event.start_ns < (one.issued_ns or 0):
                event = next(queue, None)
            if event is None:
                break
            yield k, event
            event = next(queue, None)


def _best(collectives: Sequence[Collective], numbers: Sequence[int], events: Sequence[Span]) -> dict[int, Span]:
    groups = list(dict.fromkeys(collectives[k].group for k in numbers))
    threads = list(dict.fromkeys(event.thread for event in events))
    if len(groups) < 2 or not threads or len(groups) ** len(threads) > _MOST_WAYS:
        return _in_order(collectives, numbers, events)
    # Threads keep their group: the beginning, in which each of them is seen, decides for all.
    first = max(_DECIDING, *(1 + next(k for k, e in enumerate(events) if e.thread == one) for one in threads))
    best: tuple[tuple[int, int], dict[str, str | None]] = ((-1, 0), {})
    for way in product(groups, repeat=len(threads)):
        of_thread = dict(zip(threads, way, strict=True))
        found = _by_group(collectives, numbers[:first], events[:first], of_thread)
        # Of two ways that explain as many events, the one in which they begin sooner after their calls.
        late = sum(event.start_ns - (collectives[k].issued_ns or 0) for k, event in found.items())
        if (len(found), -late) > best[0]:
            best = ((len(found), -late), of_thread)
    return _by_group(collectives, numbers, events, best[1])


def _by_group(
    collectives: Sequence[Collective],
    numbers: Sequence[int],
    events: Sequence[Span],
    of_thread: Mapping[str, str | None],
) -> dict[int, Span]:
    found: dict[int, Span] = {}
    for group in set(of_thread.values()):
        mine = [k for k in numbers if collectives[k].group == group]
        found |= _in_order(collectives, mine, [event for event in events if of_thread[event.thread] == group])
    return found


def _in_order(collectives: Sequence[Collective], numbers: Sequence[int], events: Sequence[Span]) -> dict[int, Span]:
    """Match by the order of issue, operation by operation: an event begins after its call."""
    queues: Mapping[str | None, list[Span]] = defaultdict(list)
    for event in events:
        queues[op_of(event.name)].append(event)
    found: dict[int, Span] = {}
    at: dict[str, int] = defaultdict(int)
    for k in numbers:
        one = collectives[k]
        # A reduce-scatter is carried out as an all-reduce, and shown as one.
        op = "all_reduce" if one.op == "reduce_scatter" and "reduce_scatter" not in queues else one.op
        queue = queues.get(op, [])
        while at[op] < len(queue) and queue[at[op]].start_ns < (one.issued_ns or 0):
            at[op] += 1  # issued before the first call that was seen
        if at[op] < len(queue):
            found[k] = queue[at[op]]
            at[op] += 1
    return found
