"""An inspection takes one more period of steps, after the timed ones, and looks at what they send, hold and compute."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction

from parbench.api import Job, Memory, RankContext, Strategy, Textbook, Trainer
from parbench.counting import ByteCounter
from parbench.facts import Inspected
from parbench.operators import OperatorTypes, short


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForms:
    """What a strategy says of a job before it spreads it."""

    traffic: dict[str, Fraction] | None
    textbook: Textbook | None
    memory: Memory | None


def closed_forms(strategy: Strategy, job: Job, ctx: RankContext) -> ClosedForms:
    """Return what `strategy` says of `job`, whose model may be on the meta device."""
    traffic = strategy.traffic(job, ctx)
    return ClosedForms(
        traffic=None if traffic is None else {op: size for op, size in traffic.items() if size},
        textbook=strategy.textbook(job, ctx),
        memory=strategy.memory(job, ctx),
    )


def inspect(trainer: Trainer, job: Job, closed: ClosedForms, period: int) -> Inspected:
    """Take `period` steps under observation and return what was seen.

    Args:
        trainer: the variant, at the end of a period.
        job: what it trains; its first batches are taken, which have the common size.
        closed: what its strategy says.
        period: steps after which its pattern repeats.
    """
    with ByteCounter() as counter, OperatorTypes() as types:
        for step in range(period):
            trainer.step(job.batch(step))
        trainer.drain()
    holding = trainer.holding()
    wire = counter.wire_by_op()
    weights = {short(p.dtype) for p in job.model.parameters() if p.dtype.is_floating_point}
    messages = sorted({short(one.dtype) for one in counter.seen if one.dtype is not None})
    return Inspected(
        sent={op: float(size / period) for op, size in counter.by_op().items()},
        wire=None if wire is None else {op: float(size / period) for op, size in wire.items()},
        collectives=sum(one.op not in ("barrier", "recv") for one in counter.seen) / period,
        unreadable=tuple(counter.unknown),
        traffic=None if closed.traffic is None else {op: float(size) for op, size in closed.traffic.items()},
        textbook=closed.textbook.formula if closed.textbook else None,
        textbook_bytes=float(closed.textbook.sent_bytes) if closed.textbook else None,
        held=None if holding is None else holding.bytes_of(),
        memory=None if closed.memory is None else asdict(closed.memory),
        types=types.by_class() | {"weights": "+".join(sorted(weights)), "communication": "+".join(messages) or "none"},
        notes={**job.notes, **trainer.notes()},
    )
