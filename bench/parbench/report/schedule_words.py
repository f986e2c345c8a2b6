"""What a schedule costs, in sentences: the bubble with the costs it assumes, and the micro-batches that are live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from parbench.report.schedule_facts import KINDS, ScheduleFacts
from parbench.report.words import number, visible


def title(facts: ScheduleFacts) -> str:
    """Return what is drawn."""
    counts = f"{_several(facts.ranks, 'rank')}, {_several(facts.microbatches, 'micro-batch', 'es')}"
    return f"{visible(facts.text, 80)}: {counts}"


def legend(facts: ScheduleFacts) -> str:
    """Return what the letters mean."""
    parts = [f"{kind} {KINDS[kind]}" for kind in facts.kinds]
    numbered = "the number is the micro-batch" + (", the letter behind it the chunk" if facts.chunks > 1 else "")
    return "; ".join([*parts, ". idle", numbered])


def costs(facts: ScheduleFacts) -> str:
    """Return what was assumed."""
    ratio = " : ".join(map(_spelled, (facts.costs.forward, facts.costs.input_gradient, facts.costs.weight_gradient)))
    return f"assumed: F : I : W = {ratio}, B = I + W, transfers that take no time"


def findings(facts: ScheduleFacts) -> Iterator[str]:
    """Yield a sentence for each of bubble and memory."""
    if facts.closed_form is None:
        form = "no closed form for these numbers"
    else:
        same = facts.closed_form == facts.idle
        form = "as its closed form says" if same else f"its closed form says {_share(facts.closed_form)}"
    yield f"bubble: {_share(facts.idle)} of a step is idle by the timeline, {form}"
    if facts.idle_with_barrier != facts.idle:
        yield f"with a barrier after every step: {_share(facts.idle_with_barrier)}"
    what = "activations of a rank" if facts.chunks == 1 else f"activations of one of a rank's {facts.chunks} chunks"
    yield f"peak live micro-batches by rank: {_listed(facts.peak_live)} ({what})"
    if facts.peak_live_form != facts.peak_live:
        yield f"its closed form says {_listed(facts.peak_live_form)}"


def source(facts: ScheduleFacts) -> str:
    """Return where the schedule comes from."""
    return f"{visible(facts.paper.title, 200)} {visible(facts.paper.url, 200)}"


def _listed(counts: Sequence[int]) -> str:
    return f"{counts[0]} on each" if len(set(counts)) == 1 and len(counts) > 1 else " ".join(map(str, counts))


def _share(fraction: Fraction) -> str:
    exact = f" ({fraction})" if 0 < fraction < 1 and fraction.denominator < 10_000 else ""
    return f"{number(float(100 * fraction))} %{exact}"


def _spelled(cost: Fraction) -> str:
    return str(cost.numerator) if cost.denominator == 1 else f"{float(cost):g}"


def _several(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else plural}"
