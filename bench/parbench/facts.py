"""Facts are what an examination of one strategy saw in one rank; laws judge them elsewhere, without torch."""

from __future__ import annotations

import msgspec

from parbench.observed import Flops
from parbench.record import Agrees


class ParityFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer's comparison as one rank saw it; only rank 0 knows the reference.

    Attributes:
        optimizer: "SGD" (sees a wrong scale, which Adam hides) or "the workload's own".
        losses: this rank's loss per step; null where it has none or it is not finite.
        reference: the one-process losses.
        parameter_difference: largest absolute difference of a parameter.
        update_error: norm of the parameters' difference over the norm of what the reference moved.
        problem: what could not be compared, in a sentence.
        digest: hash of the full parameters after the last step.
        held: "parameters", "optimizer" and "buffers" -> bytes after the last step; None if the trainer does not say.
    """

    optimizer: str
    losses: tuple[float | None, ...]
    reference: tuple[float, ...] = ()
    parameter_difference: float | None = None
    update_error: float | None = None
    problem: str | None = None
    digest: str = ""
    held: dict[str, int] | None = None


class TrialFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One trial job compared with one process.

    Attributes:
        trial: name of the trial job.
        unsupported: the strategy's reason for not running this trial.
        facts: per optimizer, what this rank saw.
        memory: the closed form of what is held with the workload's own optimizer; None where the strategy gives none.
    """

    trial: str
    unsupported: str | None = None
    facts: tuple[ParityFacts, ...] = ()
    memory: dict[str, int] | None = None


class StrategyFacts(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Everything one rank saw of a strategy.

    Attributes:
        agrees: what it declares.
        repeats: what it declares about the same seed twice.
        member: whether this rank took part.
        period: steps after which its pattern repeats.
        unsupported: its reason for not running at all here.
        trials: comparisons with one process.
        learning: losses on a problem that a linear model solves.
        first: losses of a run alone.
        second: losses of the same run again.
        beside: losses of the same run with another variant alive and stepping in between.
        counted: op -> logical bytes of one period, by the dispatcher.
        closed_form: op -> logical bytes of one period, as the strategy says; None where it says nothing.
        unreadable: communication operators that the counter could not read.
        leftovers: what was there after `close` and not before.
        failed_step: what went wrong when it was closed after a failed step; None if nothing did.
        seconds: what each part took.
    """

    agrees: Agrees
    repeats: str
    member: bool = True
    period: int = 1
    unsupported: str | None = None
    trials: tuple[TrialFacts, ...] = ()
    learning: tuple[float | None, ...] = ()
    first: tuple[float | None, ...] = ()
    second: tuple[float | None, ...] = ()
    beside: tuple[float | None, ...] = ()
    counted: dict[str, float] = {}
    closed_form: dict[str, float] | None = None
    unreadable: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    failed_step: str | None = None
    seconds: dict[str, float] = {}


class Inspected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What one rank sent, held and computed in one step, a mean over a period; bytes of a step are per rank.

    Attributes:
        member: whether this rank took part.
        sent: op -> logical bytes, by the dispatcher.
        wire: op -> bytes that this backend's algorithm sends; None where it is not known.
        collectives: how many were issued.
        unreadable: communication operators that the counter could not read.
        traffic: op -> logical bytes, as the strategy says; None where it says nothing.
        textbook: the formula usually quoted.
        textbook_bytes: its value.
        held: "parameters", "optimizer", "buffers" -> bytes; None where the trainer does not say.
        memory: the closed form of the same, and of gradients; None where the strategy says nothing.
        types: class of operators -> floating-point types it computed in.
        notes: what is particular to this rank.
        cost_s: what a step of the timed loop takes with nothing to train.
        flops: what a step of the whole model computes; rank 0 counts.
    """

    member: bool = True
    sent: dict[str, float] = {}
    wire: dict[str, float] | None = None
    collectives: float = 0.0
    unreadable: tuple[str, ...] = ()
    traffic: dict[str, float] | None = None
    textbook: str | None = None
    textbook_bytes: float | None = None
    held: dict[str, int] | None = None
    memory: dict[str, int] | None = None
    types: dict[str, str] = {}
    notes: dict[str, str | int | float] = {}
    flops: Flops | None = None
    cost_s: float | None = None
