"""A FusionRule says which gradients are exchanged together, and in which order: pure data, without torch.

    optimal: gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle
    backward  0--1--2--3--4--5--
    link      ......+++0001+++23333+++455

Backward makes a gradient ready after each dash. An exchange carries a group of gradients, begins when the last of them
is ready, and one goes after the other. Every exchange costs a start-up time, so that many small ones are slow; a large
one waits for its last gradient, so that it hides less behind backward.
"""

from __future__ import annotations

import abc
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from parbench.errors import UsageError
from parbench.expected_improvement import Trials
from parbench.fusion_link import AlphaBeta, Link, Measured
from parbench.paper import Paper

__all__ = [
    "AlphaBeta",
    "FusionRule",
    "Gradient",
    "Group",
    "Link",
    "Measured",
    "Paper",
    "Piece",
    "Plan",
    "Search",
    "Trials",
    "cut_plan",
    "needed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """One parameter's gradient. Those of one plan have elements of one type, and lie on one device.

    Attributes:
        name: the parameter's.
        elements: at least 1.
        bytes: what its exchange puts into a message, by which the link's time goes: fewer than in memory if compressed.
        ready_s: when backward has made it, from the start of backward; 0 where that is not known.
    """

    name: str
    elements: int
    bytes: int
    ready_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive elements of one gradient.

    Attributes:
        gradient: its place in the order in which backward makes gradients ready.
        start: the first element.
        stop: one after the last element.
    """

    gradient: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Group:
    """What one exchange carries.

    Attributes:
        pieces: in the order in which they lie in the message.
        priority: of the groups that are ready, the one with the least number goes first. Groups of one number never
            overtake each other: they go in the order of the plan.
    """

    pieces: tuple[Piece, ...]
    priority: int = 0

    @property
    def last(self) -> int:
        """The gradient for which the group waits."""
        return max(piece.gradient for piece in self.pieces)

    def bytes(self, gradients: Sequence[Gradient]) -> int:
        """Return the bytes of the message; those of all pieces of a gradient add up to the gradient's."""
        return sum(_before(gradients, one, one.stop) - _before(gradients, one, one.start) for one in self.pieces)


@dataclass(frozen=True, slots=True)
class Plan:
    """All exchanges of a step, in the order in which they are issued."""

    groups: tuple[Group, ...]


Search = Generator[Plan, float, Plan]


class FusionRule(abc.ABC):
    """A way to group gradients; its constructor's arguments are its parameters.

    A rule is a function of its arguments alone: ranks that give it the same ones hold the same plan.

    Attributes:
        name: what users write.
        paper: where it comes from.
        needs_profile: whether it goes by `ready_s`.
        needs_link: whether it goes by how long exchanges take.
        probes: whether `search` tries plans in real steps.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    needs_profile: ClassVar[bool] = False
    needs_link: ClassVar[bool] = False
    probes: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Return the name, as users write the rule without arguments."""
        return self.name

    @abc.abstractmethod
    def plan(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Plan:
        """Return which gradients are exchanged together.

        Args:
            gradients: in the order in which backward makes them ready; at least one.
            link: how long an exchange takes; may be None unless `needs_link`.
            element_bytes: memory of one element, by which sizes that users give in megabytes go.
        """

    def search(self, gradients: Sequence[Gradient], link: Link | None, element_bytes: int) -> Search:
        """Yield the plan of the next step and take how many seconds that step took; return the plan to stay with.

        Every rank must be told the same seconds, else plans differ. A rule that does not probe returns at once.
        """
        yield from ()
        return self.plan(gradients, link, element_bytes)


def cut_plan(gradients: Sequence[Gradient], cuts: Sequence[int]) -> Plan:
    """Return the plan of whole gradients, in their order, in which a new group begins at each of `cuts`.

    Args:
        gradients: in the order in which backward makes them ready.
        cuts: places among the gradients, rising, from 1 to one less than their number.
    """
    pieces = [Piece(index, 0, one.elements) for index, one in enumerate(gradients)]
    return Plan(tuple(Group(tuple(pieces[start:stop])) for start, stop in pairwise((0, *cuts, len(pieces)))))


def needed(link: Link | None, rule: FusionRule) -> Link:
    """Return the link of a rule that needs one.

    Raises:
        UsageError: there is none.
    """
    if link is None:
        raise UsageError(f"fusion rule {rule.name} needs to know how long exchanges take; give it a link")
    return link


def _before(gradients: Sequence[Gradient], piece: Piece, element: int) -> int:
    """Return the bytes of a gradient before an element, rounded down."""
    gradient = gradients[piece.gradient]
    return gradient.bytes * element // gradient.elements
