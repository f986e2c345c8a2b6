"""Gates of a trace are what it must pass to be believed: parts that add up, rates that links have, bytes that match."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from parbench.observed_trace import RankTraced, Traced
from parbench.record import Warned

# Code of a warning -> metrics that are not believed after it.
SUSPECT: Final[Mapping[str, Sequence[str]]] = {
    "breakdown_does_not_add_up": ("traced_step_time_s", "exposed_comm_fraction", "bubble_fraction"),
    "bandwidth_above_link": ("bus_bandwidth_bytes_per_s",),
    "overlap_impossible": ("overlap_fraction",),
}
_SUM_TOLERANCE: Final = 0.02
_MOST_UNATTRIBUTED: Final = 0.1
# A link's bucket lets short messages pass faster than its rate; measured peaks vary by a few percent.
_LONG_BYTES: Final = 2**20
_PEAK_TOLERANCE: Final = 1.1
_MOST_FILE_BYTES: Final = 500 * 10**6


def trace_warnings(
    traced: Traced, counted: Sequence[Mapping[str, float]], peak_bytes_per_s: float | None
) -> list[Warned]:
    """Return what a reader must know of traced steps.

    Args:
        traced: what they came to.
        counted: per rank, op -> logical bytes per step that were counted apart.
        peak_bytes_per_s: what one rank's link carries; None where that is not known.
    """
    if traced.reason is not None:
        return [_missing(traced.reason)]
    found = [one for rank in traced.ranks for one in _of_rank(rank)]
    found += [*_bandwidth(traced, peak_bytes_per_s), *_bytes(traced, counted), *_size(traced)]
    # Ranks that suffer alike are one finding: the first of each kind speaks for all.
    return list({one.code: one for one in reversed(found)}.values())[::-1]


def _missing(reason: str) -> Warned:
    return Warned(
        code="no_trace",
        message=f"no step was traced: {reason}",
        advice="the times are as good as ever, but nothing says where they went; --no-trace leaves traces out",
    )


def _of_rank(one: RankTraced) -> Iterator[Warned]:
    total_s = math.fsum(one.parts.values())
    if abs(total_s - one.step_s) > _SUM_TOLERANCE * one.step_s:
        yield Warned(
            code="breakdown_does_not_add_up",
            message=f"rank {one.rank}: parts of a traced step sum to {total_s:.6g} s, the step took {one.step_s:.6g} s",
            advice="this is a defect of the breakdown: please report it with the trace",
        )
    if one.step_s and one.unattributed_s > _MOST_UNATTRIBUTED * one.step_s:
        yield Warned(
            code="time_unattributed",
            message=f"rank {one.rank}: {one.unattributed_s / one.step_s:.0%} of a traced step is in no named part",
            advice="look at the trace: the strategy does something there that is no operator and is not annotated "
            "(parbench.api.annotated), or another process had the core",
        )
    if one.overlap is not None and not 0 <= one.overlap <= 1:
        yield Warned(
            code="overlap_impossible",
            message=f"rank {one.rank}: {one.overlap:.3g} of communication is said to overlap with computation",
            advice="this is a defect of the trace: please report it",
        )
    if one.recognised < one.candidates:
        yield Warned(
            code="events_not_recognised",
            message=f"rank {one.rank}: {one.recognised} of {one.candidates} events that may be communication were "
            f"recognised{'; ' + one.notes[0] if one.notes else ''}",
            advice="communication is at least what is said; the trace has the events",
        )


def _bandwidth(traced: Traced, peak_bytes_per_s: float | None) -> Iterator[Warned]:
    if peak_bytes_per_s is None:
        return
    for one in traced.collectives:
        rate = one.busbw_bytes_per_s
        if rate is None or (one.buffer_bytes or 0.0) < _LONG_BYTES or rate <= _PEAK_TOLERANCE * peak_bytes_per_s:
            continue
        yield Warned(
            code="bandwidth_above_link",
            message=f"{one.op} of {one.buffer_bytes:.4g} bytes over {one.ranks} ranks is said to move "
            f"{rate / 1e6:.4g} MB/s, a link {peak_bytes_per_s / 1e6:.4g} MB/s",
            advice="its time was not seen whole: do not use this bandwidth",
        )


def _bytes(traced: Traced, counted: Sequence[Mapping[str, float]]) -> Iterator[Warned]:
    for one, said in zip(traced.ranks, counted, strict=False):
        if one.bytes_per_step is None:
            yield Warned(
                code="traced_bytes_unknown",
                message=f"rank {one.rank}: the traced steps issue other collectives than the steps that were counted",
                advice="bytes of the trace are left out where nobody knows them; the counts of the record stand",
            )
            continue
        for op in sorted(said.keys() | one.bytes_per_step.keys()):
            seen, counts = one.bytes_per_step.get(op, 0.0), said.get(op, 0.0)
            if not math.isclose(seen, counts, rel_tol=1e-9, abs_tol=1e-6):
                yield Warned(
                    code="traced_bytes_differ",
                    message=f"rank {one.rank}: {op} of a traced step is {seen:.12g} bytes, {counts:.12g} were counted",
                    advice="steps differ, or the trace misses collectives: look at traffic.parquet",
                )
                break


def _size(traced: Traced) -> Iterator[Warned]:
    total = sum(traced.files.values())
    if traced.shortened is not None:
        yield Warned(
            code="trace_shortened",
            message=f"{traced.shortened} ({total / 1e6:.3g} MB)",
            advice="ask for fewer (--trace-steps N); where time goes repeats from step to step",
        )
    if total > _MOST_FILE_BYTES:
        yield Warned(
            code="trace_large",
            message=f"the trace takes {total / 1e6:.0f} MB",
            advice="ask for fewer steps (--trace-steps N), or none (--no-trace)",
        )
