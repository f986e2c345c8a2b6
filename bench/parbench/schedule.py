"""A Schedule says in which order each rank of a pipeline works on its micro-batches: pure data, without torch.

    1f1b: 3 ranks, 4 micro-batches; every cell takes equally long, . is idle
    rank 0  F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---
    rank 1  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .
    rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .

P ranks, M micro-batches, v chunks per rank: the model is cut into P v stages, and a rank holds v of them.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from parbench.paper import Paper

__all__ = ["Action", "Costs", "Kind", "Paper", "Schedule", "Transfer"]

Kind = Literal["F", "B", "I", "W"]


@dataclass(frozen=True, slots=True)
class Action:
    """One piece of a rank's work.

    Attributes:
        kind: "F" forward, "B" whole backward, or its halves: "I" gradient of the inputs, "W" gradient of the weights.
        microbatch: 0 to M - 1.
        chunk: which of the rank's chunks of the model, 0 to v - 1.
    """

    kind: Kind
    microbatch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """How long the actions of one chunk take, in any unit; a whole backward takes both of its halves."""

    forward: Fraction = Fraction(1)
    input_gradient: Fraction = Fraction(1)
    weight_gradient: Fraction = Fraction(1)

    def of(self, kind: Kind) -> Fraction:
        """Return how long an action of this kind takes."""
        durations = {"F": self.forward, "I": self.input_gradient, "W": self.weight_gradient}
        return durations[kind] if kind != "B" else self.input_gradient + self.weight_gradient

    @property
    def total(self) -> Fraction:
        """What one micro-batch takes in one chunk."""
        return self.forward + self.input_gradient + self.weight_gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What a stage gives its neighbour: an activation to the next one, or a gradient to the one before.

    Attributes:
        gradient: a gradient, else an activation.
        microbatch: of which micro-batch.
        stage: the stage that takes it.
        source: rank of the stage that gives it.
        target: rank of the stage that takes it; where both are on one rank, nothing is sent.
    """

    gradient: bool
    microbatch: int
    stage: int
    source: int
    target: int


class Schedule(abc.ABC):
    """An order of work on a pipeline; its constructor's arguments are its parameters.

    Whoever runs one keeps to it: a rank sends a result when it has it and goes on, and waits for what its next action
    takes. Run so, every schedule ends. The two flags say what a simpler runtime may do.

    Attributes:
        name: what users write: the name of the paper.
        paper: where it comes from.
        one_stream: whether all that one rank sends another, activations and gradients together, is taken in the order
            in which it is sent. Activations alone, and gradients alone, are in every schedule here. Where it is False,
            a runtime without tags receives in the order of `sent`, and keeps what is not needed yet.
        blocking_sends: whether it also ends where a send blocks until its receiver is there, if a rank posts what its
            last action sends and its next action receives together, and waits for all of it; for all numbers of ranks
            and micro-batches.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    one_stream: ClassVar[bool] = True
    blocking_sends: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Return the name, as users write the schedule without arguments."""
        return self.name

    @property
    def chunks(self) -> int:
        """Chunks of the model per rank: v."""
        return 1

    def stage_of(self, rank: int, chunk: int, ranks: int) -> int:
        """Return the number of a rank's chunk in the order of the forward pass, 0 to P v - 1."""
        return chunk * ranks + rank

    def place_of(self, stage: int, ranks: int) -> tuple[int, int]:
        """Return rank and chunk of a stage: the inverse of `stage_of`."""
        return stage % ranks, stage // ranks

    def refuses(self, ranks: int, microbatches: int) -> str | None:
        """Return a sentence saying what was given, what is allowed and what is nearest, or None where it works."""
        for count, what in ((ranks, "rank"), (microbatches, "micro-batch")):
            if count < 1:
                return f"{self.name} needs at least 1 {what}, given {count}; the nearest is 1"
        return None

    @abc.abstractmethod
    def actions(self, rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
        """Yield what a rank does in a step, in order; meaningful only where `refuses` returns None."""

    def bubble(self, ranks: int, microbatches: int, costs: Costs) -> Fraction | None:
        """Return the closed form of the idle fraction, or None where there is none for these numbers.

        Idle time of a rank / length of a step, for equal chunks and transfers that take no time. A step is as long as
        the rank that needs longest from its first action to its last one: the next step follows without a barrier.
        """
        return None

    @abc.abstractmethod
    def peak_live(self, rank: int, ranks: int, microbatches: int) -> int:
        """Return the closed form of the most micro-batches of which a rank holds activations at one time.

        Counted in activations of one chunk, so that a rank's share of the model is v of them. A micro-batch is live in
        a chunk from the start of its F to the end of its B. Where backward is split it is live to the end of its W, and
        counts as one all the time, though I frees a part of it: an upper bound.
        """

    def takes(self, action: Action, rank: int, ranks: int) -> Transfer | None:
        """Return what must be there before an action starts; None at the ends of the model, and for W."""
        stage = self.stage_of(rank, action.chunk, ranks)
        if action.kind == "F" and stage > 0:
            return self._transfer(stage - 1, stage, action.microbatch, ranks)
        if action.kind in ("B", "I") and stage < self.chunks * ranks - 1:
            return self._transfer(stage + 1, stage, action.microbatch, ranks)
        return None

    def gives(self, action: Action, rank: int, ranks: int) -> Transfer | None:
        """Return what an action gives another stage; None at the ends of the model, and for W."""
        stage = self.stage_of(rank, action.chunk, ranks)
        if action.kind == "F" and stage < self.chunks * ranks - 1:
            return self._transfer(stage, stage + 1, action.microbatch, ranks)
        if action.kind in ("B", "I") and stage > 0:
            return self._transfer(stage, stage - 1, action.microbatch, ranks)
        return None

    def sent(self, source: int, target: int, ranks: int, microbatches: int) -> Iterator[Transfer]:
        """Yield what one rank sends another in a step, in the sender's order."""
        for action in self.actions(source, ranks, microbatches):
            given = self.gives(action, source, ranks)
            if given is not None and given.target == target != source:
                yield given

    def _transfer(self, giver: int, taker: int, microbatch: int, ranks: int) -> Transfer:
        source, target = self.place_of(giver, ranks)[0], self.place_of(taker, ranks)[0]
        return Transfer(gradient=giver > taker, microbatch=microbatch, stage=taker, source=source, target=target)
