"""Simulations of a pipeline that know nothing of parbench's own: by events, by queues, and with sends that block."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from schedule_cases import Case

from parbench.schedule import Transfer

# (kind, micro-batch, chunk)
Plain = tuple[str, int, int]
# (direction "a" or "g", stage that takes it, micro-batch)
Value = tuple[str, int, int]
Time = Fraction | int


def taken(case: Case, rank: int, action: Plain) -> Value | None:
    """What an action needs from the neighbouring stage."""
    kind, microbatch, chunk = action
    stage, last = case.stage(rank, chunk), case.ranks * case.chunks - 1
    if kind == "F" and stage > 0:
        return ("a", stage, microbatch)
    if kind in "BI" and stage < last:
        return ("g", stage, microbatch)
    return None


def given(case: Case, rank: int, action: Plain) -> Value | None:
    """What an action makes for the neighbouring stage."""
    kind, microbatch, chunk = action
    stage, last = case.stage(rank, chunk), case.ranks * case.chunks - 1
    if kind == "F" and stage < last:
        return ("a", stage + 1, microbatch)
    if kind in "BI" and stage > 0:
        return ("g", stage - 1, microbatch)
    return None


def sent(case: Case, source: int, target: int) -> list[Value]:
    """What one rank sends another, in the sender's order."""
    made = (given(case, source, action) for action in case.order[source])
    return [one for one in made if one is not None and case.place(one[1])[0] == target]


def received(case: Case, source: int, target: int) -> list[Value]:
    """What one rank takes from another, in the order in which it needs it."""
    needed = (taken(case, target, action) for action in case.order[target])
    return [one for one in needed if one is not None and giver(case, one) == source]


def giver(case: Case, value: Value) -> int:
    """The rank that makes a value."""
    direction, stage, _ = value
    return case.place(stage - 1 if direction == "a" else stage + 1)[0]


def is_one_stream(case: Case) -> bool:
    """Whether activations and gradients together are taken in the order in which they are sent."""
    pairs = ((a, b) for a in range(case.ranks) for b in range(case.ranks) if a != b)
    return all(sent(case, a, b) == received(case, a, b) for a, b in pairs)


def by_events(case: Case, duration: Callable[[str], Time], transfer: Time = 0) -> list[list[tuple[Plain, Time, Time]]]:
    """Let time pass from event to event; at each, every idle rank whose next input is there begins its next action."""
    order = case.order
    lines: list[list[tuple[Plain, Time, Time]]] = [[] for _ in order]
    busy = [False] * case.ranks
    there: set[Value | None] = {None}
    events: list[tuple[Time, int, int, Value | None]] = [(0, 0, -1, None)]
    number = 0
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, _, rank, value = heapq.heappop(events)
            if rank >= 0:
                busy[rank] = False
            if value is not None:
                there.add(value)
        for rank in range(case.ranks):
            if busy[rank] or len(lines[rank]) == len(order[rank]):
                continue
            action = order[rank][len(lines[rank])]
            if taken(case, rank, action) not in there:
                continue
            end = now + duration(action[0])
            lines[rank].append((action, now, end))
            busy[rank] = True
            value = given(case, rank, action)
            late = end + transfer if value is not None and case.place(value[1])[0] != rank else end
            for event in ((end, rank, None), (late, -1, value)):
                number += 1
                heapq.heappush(events, (event[0], number, event[1], event[2]))
    assert [len(line) for line in lines] == [len(one) for one in order], f"stuck: {case}"
    return lines


def by_queues(case: Case) -> None:
    """Run with one queue of nameless messages per directed pair of ranks; who receives knows the sender's order only.

    Sends do not block, receives do. A schedule that is one stream needs no store for what comes before its time.
    """
    schedule, order = case.schedule, case.order
    pairs = [(a, b) for a in range(case.ranks) for b in range(case.ranks) if a != b]
    wire: dict[tuple[int, int], deque[Value]] = {pair: deque() for pair in pairs}
    names = {(a, b): schedule.sent(a, b, case.ranks, case.microbatches) for a, b in pairs}
    kept: list[set[Value]] = [set() for _ in order]
    done = [0] * case.ranks
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(order):
            while done[rank] < len(actions):
                need = taken(case, rank, actions[done[rank]])
                if need is not None and not _received(case, need, rank, kept[rank], wire, names):
                    break
                early = [value for value in kept[rank] if giver(case, value) != rank]
                assert not (schedule.one_stream and early), "received before its time"
                made = given(case, rank, actions[done[rank]])
                if made is not None:
                    target = case.place(made[1])[0]
                    if target == rank:
                        kept[rank].add(made)
                    else:
                        wire[rank, target].append(made)
                done[rank] += 1
                moved = True
    assert done == [len(actions) for actions in order], f"stuck: {case}"
    assert not any(wire.values()), "sent and never taken"


def _received(
    case: Case,
    need: Value,
    rank: int,
    kept: set[Value],
    wire: dict[tuple[int, int], deque[Value]],
    names: dict[tuple[int, int], Iterator[Transfer]],
) -> bool:
    """Take messages off the queue until the needed one is there; names come from the sender's order."""
    source = giver(case, need)
    while source != rank and need not in kept and wire[source, rank]:
        message, name = wire[source, rank].popleft(), next(names[source, rank])
        assert message == ("g" if name.gradient else "a", name.stage, name.microbatch)
        kept.add(message)
    if need not in kept:
        return False
    kept.remove(need)
    return True


def ends_with_blocking_sends(case: Case) -> bool:
    """Whether it ends where what the last action sends and the next one receives is posted together and waited for."""
    posts: list[list[set[tuple[str, Value]]]] = []
    for rank, actions in enumerate(case.order):
        mine: list[set[tuple[str, Value]]] = [set()]
        for action in actions:
            need, made = taken(case, rank, action), given(case, rank, action)
            if need is not None and giver(case, need) != rank:
                mine[-1].add(("receive", need))
            mine.append({("send", made)} if made is not None and case.place(made[1])[0] != rank else set())
        posts.append(mine)
    at = [0] * case.ranks
    posted = set().union(*(mine[0] for mine in posts))
    other = {"send": "receive", "receive": "send"}
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(posts):
            while at[rank] < len(mine) and all((other[how], value) in posted for how, value in mine[at[rank]]):
                at[rank] += 1
                moved = True
                if at[rank] < len(mine):
                    posted |= mine[at[rank]]
    return at == [len(mine) for mine in posts]


def idle_time(lines: Sequence[Sequence[tuple[Plain, Time, Time]]]) -> Time:
    """Idle time of the rank that needs longest from its first action to its last, where all have the same work."""
    return max(line[-1][2] - line[0][1] - sum((end - start for _, start, end in line)) for line in lines)


def in_pairs(case: Case, durations: dict[str, int], pair: int) -> int:
    """Return the idle time of a step in which a forward and the whole backward after it, of another chunk, are one.

    Such a pair begins when both inputs are there, takes `pair`, and gives both results at its end. On the last rank the
    first pair is done one after the other, as DeepSeek does.
    """
    blocks = [_paired(actions, apart=rank == case.ranks - 1) for rank, actions in enumerate(case.order)]
    there: dict[Value | None, int] = {None: 0}
    free, done, first = [0] * case.ranks, [0] * case.ranks, [-1] * case.ranks
    for _ in range(sum(map(len, blocks))):
        ready = [
            (max(free[rank], *(there[taken(case, rank, one)] for one in blocks[rank][done[rank]]), 0), rank)
            for rank in range(case.ranks)
            if done[rank] < len(blocks[rank])
            and all(taken(case, rank, one) in there for one in blocks[rank][done[rank]])
        ]
        start, rank = min(ready)
        block = blocks[rank][done[rank]]
        first[rank] = start if first[rank] < 0 else first[rank]
        free[rank] = start + (pair if len(block) == 2 else durations[block[0][0]])
        for one in block:
            there[given(case, rank, one)] = free[rank]
        there[None] = 0
        done[rank] += 1
    work = [sum(pair if len(one) == 2 else durations[one[0][0]] for one in mine) for mine in blocks]
    return max(free[rank] - first[rank] for rank in range(case.ranks)) - min(work)


def _paired(actions: Sequence[Plain], *, apart: bool) -> list[tuple[Plain, ...]]:
    blocks: list[tuple[Plain, ...]] = []
    rest = deque(actions)
    seen = False
    while rest:
        one = rest.popleft()
        if one[0] == "F" and rest and rest[0][0] == "B" and rest[0][2] != one[2]:
            two = (one, rest.popleft())
            blocks += [(two[0],), (two[1],)] if apart and not seen else [two]
            seen = True
        else:
            blocks.append((one,))
    return blocks
