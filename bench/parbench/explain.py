"""An explanation says, from the columns that two records share, what accounts for the difference of their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from parbench.gates import usable
from parbench.record import Round, RunRecord

# A part that accounts for less than this share of the difference is not named.
_SHARE = 0.1
_MOST_PARTS = 3
# How much more often than by turns a rank must come last to be called slow, and how far it must lag.
_OFTEN, _LAG = 0.8, 0.02


def because(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    """Return sentences on why `new` takes another time than `old`; the last says what these records cannot tell.

    Args:
        old: complete launches of the reference.
        new: complete launches of the cell.
    """
    if not old or not new:
        return []
    parts = _by_parts(old, new)
    found = [
        *parts,
        *_awaited(old, new),
        *_slow_rank(old, new),
        *_bytes(old, new),
        *_warnings(old, new),
        *_precision(old, new),
    ]
    if not parts:
        found.append("these records have no breakdown of the step time by parts, which would say more")
    return found


def _by_parts(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    before, after = _breakdown(old), _breakdown(new)
    if before is None or after is None:
        return []
    change = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in (*before, *after)}
    whole = sum(change.values())
    if not whole:
        return []
    parts = sorted(change.items(), key=lambda item: item[1] / whole, reverse=True)
    named = [(name, by) for name, by in parts if by / whole >= _SHARE][:_MOST_PARTS]
    told = ", ".join(f"{name} {by * 1e3:+.3g} ms ({by / whole:.0%})" for name, by in named)
    return [f"of {whole * 1e3:+.3g} ms a traced step: {told}"] if named else []


def _breakdown(records: Sequence[RunRecord]) -> dict[str, float] | None:
    found = [record.breakdown for record in records if record.breakdown]
    if not found:
        return None
    return {name: median(one.get(name, 0.0) for one in found) for name in dict.fromkeys(n for b in found for n in b)}


def _awaited(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    """Return which rank the others wait for in the traced steps, where that is new."""
    before, after = _delaying(old), _delaying(new)
    if after is None or (before is not None and before[0] == after[0] and before[2] >= after[2] / 2):
        return []
    rank, share, delay_s = after
    return [
        f"in traced steps rank {rank} comes last to {share:.0%} of the collectives and lets the others wait "
        f"{delay_s * 1e3:.3g} ms a step: what they call wait is time that it needs"
    ]


def _delaying(records: Sequence[RunRecord]) -> tuple[int, float, float] | None:
    """Return the rank that delays the others most, how often it is last, and by how many seconds of a step."""
    traced = records[-1].traced
    if traced is None or not traced.keeping or not traced.steps:
        return None
    worst = traced.keeping[0]
    step_s = max(one.step_s for one in traced.ranks)
    delay_s = worst.delayed_s / traced.steps
    if not worst.collectives or worst.last < _OFTEN * worst.collectives or delay_s < _SHARE * step_s:
        return None
    return worst.rank, worst.last / worst.collectives, delay_s


def _slow_rank(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    """Return which rank the others wait for, where that is new."""
    before, after = _last(old), _last(new)
    if after is None or after == before:
        return []
    rank, share, lag_s = after
    if before is not None and before[0] == rank and before[2] >= lag_s / 2:
        return []
    return [
        f"rank {rank} ends {share:.0%} of the rounds last, {lag_s * 1e3:.3g} ms after the others in the middle: "
        "it is slow, or has more to do"
    ]


def _last(records: Sequence[RunRecord]) -> tuple[int, float, float] | None:
    """Return the rank that is nearly always last, how often, and by how many seconds of a round."""
    rounds = [r for record in records for r in usable(record.rounds) if len(r.rank_wall_s) > 1]
    if not rounds:
        return None
    (rank, times), *_ = Counter(map(_slowest, rounds)).most_common(1)
    others = [r.rank_wall_s[rank] - max(x for k, x in enumerate(r.rank_wall_s) if k != rank) for r in rounds]
    lag_s = median(others)
    share = times / len(rounds)
    if share < _OFTEN or lag_s < _LAG * median(r.wall_s / r.steps for r in rounds):
        return None
    return rank, share, lag_s


def _slowest(r: Round) -> int:
    return max(range(len(r.rank_wall_s)), key=r.rank_wall_s.__getitem__)


def _bytes(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    before, after = _sent(old), _sent(new)
    if before is None or after is None:
        return []
    changed = [name for name in dict.fromkeys((*before, *after)) if before.get(name, 0.0) != after.get(name, 0.0)]
    told = ", ".join(f"{name} {before.get(name, 0.0):.4g} -> {after.get(name, 0.0):.4g}" for name in changed[:4])
    return [f"bytes sent in a step by the rank that sends most: {told}"] if changed else []


def _sent(records: Sequence[RunRecord]) -> Mapping[str, float] | None:
    return records[-1].traffic.sent if records[-1].traffic is not None else None


def _warnings(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    told = {w.code for record in old for w in record.warnings}
    fresh = {w.code: w.message for record in new for w in record.warnings if w.code not in told}
    return [f"warned of here only: {code} ({message})" for code, message in fresh.items()]


def _precision(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[str]:
    before, after = old[-1].precision, new[-1].precision
    changed = [
        f"{name} {before[name]} -> {after[name]}" for name in before if name in after and before[name] != after[name]
    ]
    return [f"computed in other types: {', '.join(changed[:4])}"] if changed else []
