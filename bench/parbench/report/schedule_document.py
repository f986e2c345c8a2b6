"""The JSON document of a schedule, as `parbench show schedule NAME --json` prints it."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from parbench.record import Schema
from parbench.report.schedule_facts import ScheduleFacts
from parbench.timeline import Timed

SCHEMA = Schema(name="parbench.schedule")


def schedule_document(facts: ScheduleFacts) -> bytes:
    """Return strict JSON; a fraction is given as a number and exactly, as text."""
    whole = {
        "schema": SCHEMA,
        "schedule": facts.text,
        "paper": {"title": facts.paper.title, "url": facts.paper.url},
        "ranks": facts.ranks,
        "microbatches": facts.microbatches,
        "chunks": facts.chunks,
        "costs": {
            "forward": float(facts.costs.forward),
            "input_gradient": float(facts.costs.input_gradient),
            "weight_gradient": float(facts.costs.weight_gradient),
        },
        "bubble": {
            "denominator": "length of a step, idle time included; transfers take no time",
            "timeline": _fraction(facts.idle),
            "timeline_with_barrier": _fraction(facts.idle_with_barrier),
            "closed_form": None if facts.closed_form is None else _fraction(facts.closed_form),
            "reason": "no closed form for these numbers" if facts.closed_form is None else None,
        },
        "peak_live": {
            "unit": "activations of one micro-batch in one chunk",
            "counted": facts.peak_live,
            "closed_form": facts.peak_live_form,
        },
        "timeline": [[_timed(one) for one in line] for line in facts.lines],
    }
    return msgspec.json.encode(whole)


def _fraction(value: Fraction) -> dict[str, object]:
    return {"value": float(value), "exact": str(value)}


def _timed(one: Timed) -> dict[str, object]:
    return {
        "kind": one.action.kind,
        "microbatch": one.action.microbatch,
        "chunk": one.action.chunk,
        "start": float(one.start),
        "end": float(one.end),
    }
