"""Closed forms of what ranks send, and a Textbook's, which leaves out padding, buffers and what a system does besides.

P parameters of the whole model, b bytes of one, n ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from parbench.context import RankContext
from parbench.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Textbook:
    """The formula that is usually quoted for a strategy.

    Attributes:
        formula: in the letters above, such as "2(n-1)/n P b".
        sent_bytes: its value for one rank and step.
    """

    formula: str
    sent_bytes: Fraction


def trained_bytes(job: Job) -> int:
    """Return P b: the bytes of all trainable parameters."""
    return sum(p.numel() * p.element_size() for p in job.model.parameters() if p.requires_grad)


def all_reduced(size: int | Fraction, n: int) -> Fraction:
    """Return what a ring sends per rank to all-reduce `size` bytes: 2(n-1)/n of them."""
    return Fraction(2 * (n - 1), n) * size


def shared_out(size: int | Fraction, n: int) -> Fraction:
    """Return what a ring sends per rank to reduce-scatter or all-gather `size` bytes in all: (n-1)/n of them."""
    return Fraction(n - 1, n) * size


def all_reduce_bytes(job: Job, ctx: RankContext) -> Fraction:
    """Return what a ring sends per rank to all-reduce every trainable parameter's gradient once: 2(n-1)/n P b."""
    return all_reduced(trained_bytes(job), ctx.world_size)


def data_parallel(job: Job, ctx: RankContext) -> Textbook:
    """Return the textbook form of replicas that average their gradients: 2(n-1)/n P b."""
    return Textbook(formula="2(n-1)/n P b", sent_bytes=all_reduce_bytes(job, ctx))
