"""What a record says of memory: the peak of the worst rank, what was alive in it, and the closed form beside it."""

from __future__ import annotations

from collections.abc import Sequence

from parbench.cases import Measured
from parbench.observed import MemoryUse, Weighed
from parbench.record import Metric, Warned

PARTS = ("parameters", "gradients", "optimizer", "activations", "other")
# Storages that were alive cannot exceed the peak; a process has its own granularity, pages and arenas.
_TOO_MUCH, _GRAIN_BYTES = 0.1, 8 * 2**20


def memory_of(m: Measured) -> MemoryUse | None:
    """Return the memory of every rank, the one that needed most named; None where the run did not get that far."""
    if m.weigh_reason is not None:
        return MemoryUse(reason=m.weigh_reason)
    if not m.weighed:
        return None
    rank = max(range(len(m.weighed)), key=lambda k: (m.weighed[k].peak_bytes, -k))
    one = m.weighed[rank]
    if one.reason is not None:
        return MemoryUse(reason=one.reason)
    predicted = None if one.predicted is None else sum(one.predicted.values())
    return MemoryUse(
        rank=rank,
        ranks=m.weighed,
        parts=_parts(one),
        unexplained_bytes=one.peak_bytes - sum(one.at_peak.values()),
        predicted_bytes=predicted,
        difference_bytes=None if predicted is None else one.peak_bytes - predicted,
    )


def _parts(one: Weighed) -> dict[str, int]:
    """Return what the peak is made of; "other" is the rest, so that the parts sum to it."""
    named = {name: one.at_peak.get(name, 0) for name in PARTS[:-1]}
    return named | {"other": one.peak_bytes - sum(named.values())}


def memory_metrics(m: Measured, warnings: Sequence[Warned]) -> dict[str, Metric]:
    """Return the peak of the worst rank and its parts.

    Args:
        m: what was measured.
        warnings: of `memory_cautions`; they make the numbers suspect.
    """
    use = memory_of(m)
    names = ["peak_memory_bytes", *(f"memory_{part}_bytes" for part in PARTS)]
    if use is None or use.reason is not None:
        reason = use.reason if use is not None and use.reason else "the run ended before memory was measured"
        return {name: Metric.unavailable("bytes", "lower", reason) for name in names}
    one = use.ranks[use.rank]
    alone = f"rank {use.rank} of {len(use.ranks)}, in a launch that holds this variant alone, after the first steps"
    peak = Metric(
        value=float(one.peak_bytes),
        unit="bytes",
        better="lower",
        n=1,
        source=f"{one.source}, above the {one.base_bytes / 2**20:.0f} MiB it had before it built anything; {alone}",
    )
    split = f"storages alive at the peak, by torch's dispatcher; {alone}"
    found = {"peak_memory_bytes": peak} | {
        f"memory_{part}_bytes": Metric(
            value=float(size),
            unit="bytes",
            better="lower",
            n=1,
            source=split if part != "other" else f"the rest of the peak: buffers, buckets, allocator; {alone}",
        )
        for part, size in use.parts.items()
    }
    if warnings:
        found = {name: metric.suspected(warnings[0].message) for name, metric in found.items()}
    return found


def memory_cautions(m: Measured) -> list[Warned]:
    """Return what parts and whole contradict each other about."""
    use = memory_of(m)
    if use is None or not use.ranks or use.unexplained_bytes >= -_allowed(use.ranks[use.rank]):
        return []
    one = use.ranks[use.rank]
    return [
        Warned(
            code="memory_does_not_add_up",
            message=f"rank {use.rank}: {sum(one.at_peak.values()) / 2**20:.4g} MiB of storages were alive at once, but "
            f"the peak is said to be {one.peak_bytes / 2**20:.4g} MiB",
            advice="the step that was followed differs from those that were measured: look for what a strategy keeps",
        )
    ]


def _allowed(one: Weighed) -> float:
    return _TOO_MUCH * one.peak_bytes + _GRAIN_BYTES
