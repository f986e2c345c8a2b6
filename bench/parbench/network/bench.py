"""A bench measures collectives by size, as nccl-tests does: every sample kept, every result checked.

Iterations run back to back. One iteration lasts from the moment the slowest rank completed the one before to the moment
the slowest rank completes it: ranks of one machine share a clock, and these times add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from parbench.errors import UsageError, unknown_name
from parbench.network.collectives import DTYPES, OPS, bus_factor, numel_of
from parbench.network.patterns import MOST_RANKS

if TYPE_CHECKING:
    from parbench.launch.messages import CollectivesDone
    from parbench.launch.ranks import Ranks

ALGORITHMS = ("native", "ring")
RING_OPS = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast"})
# What a rank holds at once while it checks, in elements of 4 bytes per element: both buffers and whole numbers.
_BUFFERS_HELD = 8
_FEWEST_ITERATIONS = 3


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One collective to measure; `bytes` is the whole buffer of one rank."""

    op: str
    algorithm: str
    ranks: int
    bytes: int
    dtype: str = "float32"
    warm_up: int = 5
    iterations: int = 20
    alpha_s: float = 0.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a measured collective.

    Attributes:
        median_s: over iterations.
        busbw_bytes_per_s: bus bandwidth by the number of ranks in the group, as nccl-tests define it.
        wire_bytes_per_rank: sent per iteration by the rank that sent most, without headers of TCP and IP; None where
            nothing counts them.
        correct: whether every rank got what an independent computation gives, before and after the timing.
    """

    op: str
    algorithm: str
    ranks: int
    bytes: int
    median_s: float
    busbw_bytes_per_s: float
    wire_bytes_per_rank: float | None
    correct: bool


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One measured collective, with everything behind its row.

    Attributes:
        wanted: what was asked for; its bytes are those of the row.
        samples_s: every iteration, in order.
        sent_bytes: per iteration, of each rank; None where nothing counts them.
        wrong: what was wrong, "" if nothing.
    """

    wanted: Wanted
    samples_s: tuple[float, ...]
    sent_bytes: tuple[float, ...] | None
    wrong: str = ""

    @property
    def median_s(self) -> float:
        """Over iterations."""
        return float(np.median(self.samples_s))

    def percentile_s(self, percent: float) -> float:
        """Return a percentile over iterations: with fewer than 100 of them, the 99th is close to the slowest."""
        return float(np.percentile(self.samples_s, percent))

    @property
    def algbw_bytes_per_s(self) -> float:
        """Bytes of the buffer over the median."""
        return self.wanted.bytes / self.median_s

    @property
    def busbw_bytes_per_s(self) -> float:
        """Algorithm bandwidth times the factor of the collective."""
        return self.algbw_bytes_per_s * float(bus_factor(self.wanted.op, self.wanted.ranks))

    @property
    def row(self) -> Row:
        """The row that is printed."""
        return Row(
            op=self.wanted.op,
            algorithm=self.wanted.algorithm,
            ranks=self.wanted.ranks,
            bytes=self.wanted.bytes,
            median_s=self.median_s,
            busbw_bytes_per_s=self.busbw_bytes_per_s,
            wire_bytes_per_rank=max(self.sent_bytes) if self.sent_bytes is not None else None,
            correct=not self.wrong,
        )


def series(
    ops: Sequence[str],
    algorithms: Sequence[str],
    ranks: Sequence[int],
    sizes: Sequence[int],
    *,
    dtype: str = "float32",
    warm_up: int = 5,
    iterations: int = 20,
    alpha_s: float = 0.0,
) -> list[Wanted]:
    """Return what to measure, algorithms of one size side by side; the ring is left out where it does not do an `op`.

    Raises:
        UsageError: a name is not known, a number cannot be meant, or nothing is left.
    """
    for kind, given, known in (
        ("collective", ops, OPS),
        ("algorithm", algorithms, ALGORITHMS),
        ("type", [dtype], DTYPES),
    ):
        for name in given:
            if name not in known:
                raise unknown_name(kind, name, known, "parbench network bench --help")
    if not all(2 <= n <= MOST_RANKS for n in ranks) or iterations < 1 or warm_up < 0:
        raise UsageError(
            f"ranks {', '.join(map(str, ranks))}, {iterations} iterations, {warm_up} to warm up: give from 2 to "
            f"{MOST_RANKS} ranks, at least 1 iteration and no negative warm-up"
        )
    found = {}
    for n in ranks:
        for op in ops:
            for size in sizes:
                for algorithm in algorithms:
                    if algorithm == "ring" and op not in RING_OPS:
                        continue
                    nbytes = numel_of(op, size, dtype, n) * DTYPES[dtype]
                    found[op, algorithm, n, nbytes] = Wanted(
                        op=op,
                        algorithm=algorithm,
                        ranks=n,
                        bytes=nbytes,
                        dtype=dtype,
                        warm_up=warm_up,
                        iterations=iterations,
                        alpha_s=alpha_s if algorithm == "ring" else 0.0,
                    )
    if not found:
        raise UsageError(f"the ring does {', '.join(sorted(RING_OPS))}; add --algorithm native for {', '.join(ops)}")
    return list(found.values())


def check_memory(wanted: Sequence[Wanted], free_bytes: int) -> None:
    """Refuse what would not fit.

    Raises:
        UsageError: the buffers of all ranks of one machine need more memory than is free.
    """
    for one in wanted:
        need = one.bytes // DTYPES[one.dtype] * _BUFFERS_HELD * 4 * one.ranks
        if need > free_bytes:
            raise UsageError(
                f"{one.op} of {one.bytes} bytes at {one.ranks} ranks needs about {need / 2**30:.1f} GiB to be run and "
                f"checked, {free_bytes / 2**30:.1f} GiB are free; lower --max"
            )


def run(
    wanted: Sequence[Wanted],
    ranks: Ranks,
    *,
    budget_s: float = math.inf,
    say: Callable[[Wanted], None] = lambda _: None,
) -> Iterator[Measured]:
    """Measure, one after the other, in ranks that are alive.

    Args:
        wanted: what to measure.
        ranks: at least as many as the largest group.
        budget_s: where a size would take longer, by what those before it took, it gets fewer iterations.
        say: told what is measured next.

    Raises:
        RankLost, RanksStuck, Stopped: as `Ranks.call`.
    """
    known: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for one in wanted:
        say(one)
        times = known.setdefault((one.op, one.algorithm, one.ranks), [])
        found = measured(affordable(one, foreseen_s(times, one.bytes), budget_s), ranks)
        times.append((one.bytes, found.median_s))
        yield found


def foreseen_s(times: Sequence[tuple[int, float]], nbytes: int) -> float:
    """Return what `nbytes` will take, on the line through the two sizes measured last; of one size, what it took."""
    if not times:
        return 0.0
    last_bytes, last_s = times[-1]
    before_bytes, before_s = times[-2] if len(times) > 1 else (0, last_s)
    return last_s + max(0.0, last_s - before_s) / (last_bytes - before_bytes) * (nbytes - last_bytes)


def affordable(wanted: Wanted, each_s: float, budget_s: float) -> Wanted:
    """Return `wanted` with as many iterations as `budget_s` allows if each takes `each_s`, at least 3 if so many."""
    if each_s * (wanted.iterations + wanted.warm_up) <= budget_s:
        return wanted
    total = budget_s / each_s
    fewest = min(_FEWEST_ITERATIONS, wanted.iterations)
    iterations = max(fewest, int(total * wanted.iterations / (wanted.iterations + wanted.warm_up)))
    warm_up = min(wanted.warm_up, max(1, iterations // 4))
    return msgspec.structs.replace(wanted, iterations=iterations, warm_up=warm_up)


def measured(wanted: Wanted, ranks: Ranks) -> Measured:
    """Measure one collective in ranks that are alive."""
    from parbench.launch.messages import Collectives, CollectivesDone

    fields = msgspec.structs.asdict(wanted)
    replies = ranks.call(Collectives(**fields))
    return gathered(wanted, [r for r in replies if isinstance(r, CollectivesDone) and r.member])


def gathered(wanted: Wanted, parts: Sequence[CollectivesDone]) -> Measured:
    """Put together what the ranks of the group saw."""
    complete_s = [max(part.start_s for part in parts)]
    complete_s += [max(ends) for ends in zip(*(part.ends_s for part in parts), strict=True)]
    counted = [part.sent_bytes for part in parts if part.sent_bytes is not None]
    return Measured(
        wanted=wanted,
        samples_s=tuple(after - before for before, after in pairwise(complete_s)),
        sent_bytes=tuple(counted) if len(counted) == len(parts) else None,
        wrong="; ".join(part.wrong for part in parts if part.wrong),
    )
