"""An Order is what every rank of a pipeline does in a step, action by action, checked: each once, and never stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from parbench.errors import UsageError
from parbench.schedule import Action, Kind, Schedule, Transfer

Order = Sequence[Sequence[Action]]


def checked_order(schedule: Schedule, ranks: int, microbatches: int) -> Order:
    """Return the actions of every rank, in order.

    Raises:
        UsageError: the schedule refuses these numbers; or it is broken: an action is left out, done twice or in a wrong
            place, or ranks wait for each other for ever.
    """
    refusal = schedule.refuses(ranks, microbatches)
    if refusal is not None:
        raise UsageError(refusal)
    most = 3 * schedule.chunks * microbatches + 1  # one too many shows that there are too many
    order = [list(islice(schedule.actions(rank, ranks, microbatches), most)) for rank in range(ranks)]
    problem = _misplaced(schedule, ranks) or next(
        filter(None, (_wrong(schedule, one, microbatches) for one in order)), ""
    )
    if problem:
        raise UsageError(f"{_called(schedule, ranks, microbatches)} is broken: {problem}; mend it")
    for _ in executed(schedule, order):
        pass
    return order


def executed(schedule: Schedule, order: Order) -> Iterator[tuple[int, Action]]:
    """Yield rank and action of a whole step, so that everything an action takes is given before it.

    Raises:
        UsageError: ranks wait for each other for ever.
    """
    ranks = len(order)
    done, given = [0] * ranks, set[Transfer | None]((None,))
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(order):
            while done[rank] < len(actions):
                action = actions[done[rank]]
                if schedule.takes(action, rank, ranks) not in given:
                    break
                yield rank, action
                given.add(schedule.gives(action, rank, ranks))
                done[rank] += 1
                moved = True
    waiting = [rank for rank in range(ranks) if done[rank] < len(order[rank])]
    if waiting:
        rank = waiting[0]
        what = _spelled(order[rank][done[rank]])
        raise UsageError(
            f"schedule {schedule.name} gets stuck: rank {rank} waits for ever before {what}; mend its actions"
        )


def peak_live(actions: Sequence[Action]) -> int:
    """Return the most micro-batches that are live at one time, as `Schedule.peak_live` counts them."""
    live = peak = 0
    for action in actions:
        live += action.kind == "F"
        peak = max(peak, live)
        live -= action.kind in ("B", "W")
    return peak


def _misplaced(schedule: Schedule, ranks: int) -> str:
    places = [(rank, chunk) for chunk in range(schedule.chunks) for rank in range(ranks)]
    stages = {schedule.stage_of(rank, chunk, ranks): (rank, chunk) for rank, chunk in places}
    if sorted(stages) != list(range(len(places))):
        return f"stage_of gives stages {sorted(stages)[:8]} ... where 0 to {len(places) - 1} are"
    wrong = [stage for stage, place in stages.items() if schedule.place_of(stage, ranks) != place]
    return f"place_of({wrong[0]}) is not where stage_of says" if wrong else ""


def _wrong(schedule: Schedule, actions: Sequence[Action], microbatches: int) -> str:
    """Return what is wrong with one rank's actions, or ""."""
    seen: dict[tuple[int, int], list[Kind]] = {}
    for action in actions:
        if not (0 <= action.microbatch < microbatches and 0 <= action.chunk < schedule.chunks):
            return f"there is no {_spelled(action)}"
        seen.setdefault((action.microbatch, action.chunk), []).append(action.kind)
    for microbatch in range(microbatches):
        for chunk in range(schedule.chunks):
            kinds = seen.get((microbatch, chunk), [])
            if kinds not in (["F", "B"], ["F", "I", "W"]):
                found = " ".join(kinds) or "nothing"
                return f"a rank does {found} of micro-batch {microbatch} in chunk {chunk}, not F B or F I W"
    return ""


def _spelled(action: Action) -> str:
    return f"{action.kind} of micro-batch {action.microbatch} in chunk {action.chunk}"


def _called(schedule: Schedule, ranks: int, microbatches: int) -> str:
    return f"schedule {schedule.name} with {ranks} ranks and {microbatches} micro-batches"
