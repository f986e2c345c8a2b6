"""Injection lends samples: in every step some ranks, drawn anew, give part of theirs to all others.

rank 0 (lends)   | o o o o o | of its own; the first beta of o go to rank 1
rank 1           | o o o o l | its own, and what rank 0 lends

With shares of b samples and k lenders a rank trains on o = b / (1 + k beta) of its own and on beta o of each lender, so
that batches stay as large as they were. After Tyagi and Swany (2023), section on data injection, https://arxiv.org/abs/2307.07950.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import final

import torch

from parbench.api import Batch, RankContext


@final
@dataclass(frozen=True, slots=True)
class Injection:
    """How much is lent.

    Attributes:
        alpha: the part of the ranks that lend; at least one where it is above 0.
        beta: the part of its samples that a lender gives away.

    Raises:
        ValueError: a part is not from 0 to 1.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be from 0 (nothing is lent) to 1, got {value}")

    def __bool__(self) -> bool:
        """Whether anything is lent."""
        return self.alpha > 0 and self.beta > 0

    def lenders(self, seed: int, step: int, world_size: int) -> list[int]:
        """Return the ranks that lend in a step, the same on every rank."""
        count = max(1, round(self.alpha * world_size))
        return sorted(random.Random(f"injection {seed} {step}").sample(range(world_size), count))

    def sizes(self, share: int, lenders: int) -> tuple[int, int]:
        """Return how many samples of its own a rank trains on at least, and how many each lender gives.

        Args:
            share: samples of the smallest share.
            lenders: ranks that lend.
        """
        own = int(share / (1 + lenders * self.beta))
        return own, min(round(self.beta * own), share - own)

    def mixed(self, mine: Batch, samples: int, step: int, ctx: RankContext) -> tuple[Batch, int, int]:
        """Let samples travel: every lender broadcasts what it lends.

        Args:
            mine: this rank's share.
            samples: of all shares together, whose sizes differ by at most one.
            step: steps taken before this one.
            ctx: this rank.

        Returns:
            What this rank trains on, the samples of all ranks together then, and how many of its share it leaves out.
        """
        lenders = self.lenders(ctx.generator.initial_seed(), step, ctx.world_size)
        own, lent = self.sizes(samples // ctx.world_size, len(lenders))
        if own == 0 or lent == 0:  # too few to lend any
            return mine, samples, 0
        kept = own + lent if ctx.rank in lenders else own
        parts = [mine.cut(0, kept)]
        for lender in lenders:
            # A rank that receives overwrites as many of its own.
            loan = Batch(inputs=mine.inputs[:lent].clone(), targets=mine.targets[:lent].clone())
            ctx.comm.broadcast(loan.inputs, lender)
            ctx.comm.broadcast(loan.targets, lender)
            if lender != ctx.rank:
                parts.append(loan)
        whole = Batch(inputs=torch.cat([p.inputs for p in parts]), targets=torch.cat([p.targets for p in parts]))
        return whole, ctx.world_size * (own + lent * len(lenders)), mine.samples - kept
