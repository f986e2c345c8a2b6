"""RoundSamples are the raw samples of one round: what every rank that took part measured of it."""

from __future__ import annotations

from dataclasses import dataclass

from parbench.launch.messages import StepsDone


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSamples:
    """The raw samples of K consecutive steps of one variant.

    Attributes:
        first_step: number of the first step; every step the variant ever took is counted.
        samples: per step, samples of the global batch that were processed.
        losses: per step, the mean loss of the global batch; None where a rank gave one that is not finite, or none did.
        ranks: what each member rank measured, in rank order.
        nonfinite: steps in which a rank's loss was NaN or infinite.
    """

    first_step: int
    samples: tuple[int, ...]
    losses: tuple[float | None, ...]
    ranks: tuple[StepsDone, ...]
    nonfinite: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.samples)

    @property
    def wall_s(self) -> float:
        """Seconds from the barrier to drained, on the slowest rank."""
        return max(r.wall_s for r in self.ranks)

    @property
    def compile_s(self) -> float:
        """Seconds of it that the slowest rank spent compiling."""
        return max(r.compile_s for r in self.ranks)

    @property
    def drain_s(self) -> float:
        """Longest time over ranks of completing pending work after the last step."""
        return max(r.drain_s for r in self.ranks)
