"""A Line is one metric of one comparison in words, before it is laid out for a terminal or as Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parbench.comparable import Differs
from parbench.comparison import CellCompared, Compared, Comparison
from parbench.record import Metric
from parbench.report.words import DASH, TIMES, amount, number, several, visible

HEADINGS = ("workload", "strategy", "ranks", "metric", "old", "new", "change [95 % interval]", "verdict")
# Changes below this factor are said in per cent.
_PER_CENT = 1.5
_ORDER = {"missing": 0, "worse": 0, "better": 1, "changed": 1, "inconclusive": 2, "not ranked": 3, "same": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One metric of one cell: its texts under HEADINGS, its verdict and the sentence that belongs to it."""

    texts: tuple[str, ...]
    verdict: str
    why: str


def lines_of(comparison: Comparison, *, changes_first: bool) -> list[Line]:
    """Return a line per cell and metric.

    Args:
        comparison: what was found.
        changes_first: what changed is on top, not in the order of cells.
    """
    found = [_line(cell, one) for cell in comparison.cells for one in cell.metrics]
    return sorted(found, key=lambda one: _ORDER[one.verdict]) if changes_first else found


def change(one: Compared) -> str:
    """Return how far new is from old: `2.10x [1.90, 2.30]` or `+3.2 % [1.1, 5.4]`.

    A time that got shorter is said as old / new, as people speak: 2x faster is half the time.
    """
    if one.ratio is None:
        return DASH
    shorter = one.unit == "s" and one.ratio < 1 / _PER_CENT
    ends = [x for x in (one.low, one.ratio, one.high) if x is not None]
    factors = sorted(1 / x for x in ends) if shorter else ends
    middle = 1 / one.ratio if shorter else one.ratio
    known = len(factors) == 3
    if abs(math.log(one.ratio)) >= math.log(_PER_CENT):
        interval = f" [{number(factors[0])}, {number(factors[2])}]" if known else ""
        return f"{number(middle)}{TIMES}{interval}"
    interval = f" [{100 * (factors[0] - 1):+.1f}, {100 * (factors[2] - 1):+.1f}]" if known else ""
    return f"{100 * (middle - 1):+.1f} %{interval}"


def differing(differs: Sequence[Differs]) -> Iterator[str]:
    """Yield what differs, a line each; long hashes are cut."""
    for one in differs:
        yield f"{visible(one.what, 60)}: {visible(one.old, 60)} {chr(0x2192)} {visible(one.new, 60)}"


def below(comparison: Comparison) -> Iterator[str]:
    """Yield the sentences under the table: what is not ranked, why times differ, what is missing, notes."""
    for cell in comparison.cells:
        name = called(cell)
        if cell.unranked:
            yield f"not ranked: {name}: {visible('; '.join(cell.unranked), 2000)}"
    yield from _reasons([cell for cell in comparison.cells if cell.because])
    for cell in comparison.cells:
        for sentence in differing(cell.differs):
            yield f"differs for {called(cell)}: {sentence}"
    if comparison.missing:
        yield f"missing in {visible(comparison.new)}: {several(visible(one) for one in comparison.missing)}"
    if comparison.added:
        yield f"only in {visible(comparison.new)}: {several(visible(one) for one in comparison.added)}"
    yield from (visible(note, 2000) for note in comparison.notes)


def _reasons(cells: Sequence[CellCompared]) -> Iterator[str]:
    """Yield why times differ, a line per cell; what holds for several cells alike is said once."""
    often = Counter(sentence for cell in cells for sentence in cell.because)
    for cell in cells:
        own = [visible(sentence, 2000) for sentence in cell.because if often[sentence] == 1]
        if own:
            yield f"why {called(cell)}: {'; '.join(own)}"
    yield from (f"why {count} of them: {visible(sentence, 2000)}" for sentence, count in often.items() if count > 1)


def called(cell: CellCompared) -> str:
    """Return a cell in words."""
    ranks = f"{cell.ranks} rank{'' if cell.ranks == 1 else 's'}"
    return f"{visible(cell.strategy, 60)} at {ranks} on {visible(cell.workload, 60)}"


def title(comparison: Comparison) -> str:
    """Return what is compared with what."""
    return f"{visible(comparison.new)} against {visible(comparison.old)}"


def value(number_of: float | None, one: Compared) -> str:
    """Return a value with its unit."""
    return amount(Metric(value=number_of, unit=one.unit, better=one.better))


def _line(cell: CellCompared, one: Compared) -> Line:
    return Line(
        texts=(
            visible(cell.workload, 40),
            visible(cell.strategy, 40),
            str(cell.ranks),
            visible(one.metric, 40),
            value(one.old, one) if cell.reference else DASH,
            value(one.new, one),
            change(one) if cell.reference else "reference",
            visible(one.word, 40),
        ),
        verdict=one.verdict,
        why=visible(one.why, 1000),
    )
