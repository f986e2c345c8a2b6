"""A plan is checked before it is used: every element goes once, in an order that no gradient holds up needlessly."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from itertools import pairwise

from parbench.errors import UsageError
from parbench.fusion import FusionRule, Gradient, Link, Piece, Plan


def planned(rule: FusionRule, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
    """Return the rule's plan, checked; for no gradients, no exchange.

    Raises:
        UsageError: a number of a gradient makes no sense, the rule needs a link and has none, or it is broken.
    """
    checked_gradients(gradients)
    if element_bytes < 1:
        raise UsageError(f"an element has at least 1 byte, given {element_bytes}; give the size of the gradients' type")
    if not gradients:
        return Plan(())
    return checked_plan(rule.plan(gradients, link, element_bytes), gradients, rule.name)


def checked_gradients(gradients: Sequence[Gradient]) -> None:
    """Make sure that gradients are what rules take: named, not empty, in the order in which they are ready.

    Raises:
        UsageError: they are not.
    """
    if len({one.name for one in gradients}) < len(gradients):
        raise UsageError("two gradients have one name; a parameter that is used twice has one gradient")
    for one in gradients:
        if one.elements < 1 or one.bytes < 1:
            raise UsageError(
                f"gradient {one.name!r} has {one.elements} elements and {one.bytes} bytes, where both are at least 1; "
                "leave it out: there is nothing to exchange"
            )
        if not (math.isfinite(one.ready_s) and one.ready_s >= 0):
            raise UsageError(f"gradient {one.name!r} is ready at {one.ready_s!r} s, where 0 or more is; measure again")
    for before, after in pairwise(gradients):
        if after.ready_s < before.ready_s:
            raise UsageError(
                f"gradient {after.name!r} is ready at {after.ready_s!r} s and before it {before.name!r} at "
                f"{before.ready_s!r} s; give them in the order in which they are ready"
            )


def checked_plan(plan: Plan, gradients: Sequence[Gradient], name: str) -> Plan:
    """Return the plan of the rule of this name.

    Raises:
        UsageError: it leaves an element out, has one twice, or is in an order that it cannot have.
    """
    problem = _misplaced(plan, gradients) or _uncovered(plan, gradients) or _held_up(plan, gradients)
    if problem:
        raise UsageError(f"fusion rule {name} is broken: {problem}; mend its plan")
    return plan


def plan_hash(plan: Plan, gradients: Sequence[Gradient]) -> str:
    """Return what equal plans of the same gradients have in common, and no others: 64 hexadecimal digits.

    Names and numbers of elements count: a plan numbers gradients in the order of this rank's backward, and one number
    must be one parameter on every rank. Times do not: no two ranks measure the same.
    """
    named = [[one.name, one.elements] for one in gradients]
    groups = [[group.priority, [[one.gradient, one.start, one.stop] for one in group.pieces]] for group in plan.groups]
    return hashlib.sha256(json.dumps([named, groups]).encode()).hexdigest()


def _misplaced(plan: Plan, gradients: Sequence[Gradient]) -> str:
    for number, group in enumerate(plan.groups):
        if not group.pieces:
            return f"group {number} is empty"
        for one in group.pieces:
            if not 0 <= one.gradient < len(gradients):
                return f"group {number} has gradient {one.gradient}, where 0 to {len(gradients) - 1} are"
            if not 0 <= one.start < one.stop <= gradients[one.gradient].elements:
                return f"group {number} has {_spelled(one, gradients)}"
    return ""


def _uncovered(plan: Plan, gradients: Sequence[Gradient]) -> str:
    parts: list[list[Piece]] = [[] for _ in gradients]
    for group in plan.groups:
        for one in group.pieces:
            parts[one.gradient].append(one)
    for index, pieces in enumerate(parts):
        covered = 0
        for one in sorted(pieces, key=lambda one: one.start):
            if one.start < covered:
                return f"element {one.start} of {gradients[index].name!r} goes twice"
            if one.start > covered:
                break
            covered = one.stop
        if covered < gradients[index].elements:
            return f"element {covered} of {gradients[index].name!r} is left out"
    return ""


def _held_up(plan: Plan, gradients: Sequence[Gradient]) -> str:
    latest: dict[int, int] = {}
    for number, group in enumerate(plan.groups):
        if group.last < latest.get(group.priority, 0):
            held, later = gradients[group.last].name, gradients[latest[group.priority]].name
            return f"group {number} is ready with {held!r} and must wait for {later!r}, of the same priority"
        latest[group.priority] = group.last
    return ""


def _spelled(piece: Piece, gradients: Sequence[Gradient]) -> str:
    one = gradients[piece.gradient]
    return f"elements {piece.start} to {piece.stop} of {one.name!r}, which has 0 to {one.elements}"
