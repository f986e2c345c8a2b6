"""Filling groups until each has enough bytes: what DDP's buckets and GradientFlow's threshold have in common."""

from __future__ import annotations

from collections.abc import Sequence

from parbench.fusion import Gradient, Plan, cut_plan


def filled(gradients: Sequence[Gradient], element_bytes: int, first_bytes: int, further_bytes: int) -> Plan:
    """Return the plan in which a group ends with the gradient that gives it enough bytes of memory.

    Args:
        gradients: in the order in which backward makes them ready.
        element_bytes: memory of one element.
        first_bytes: what is enough for the first group.
        further_bytes: what is enough for the others.
    """
    cuts: list[int] = []
    held, enough = 0, first_bytes
    for index, one in enumerate(gradients[:-1]):
        held += one.elements * element_bytes
        if held >= enough:
            cuts.append(index + 1)
            held, enough = 0, further_bytes
    return cut_plan(gradients, cuts)
