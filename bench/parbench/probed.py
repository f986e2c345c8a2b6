"""Probed is what probes measured in the timed rounds, one metric per series."""

from __future__ import annotations

import math

from parbench.cases import Measured
from parbench.record import Metric
from parbench.statistics import median_interval


def probed(m: Measured) -> dict[str, Metric]:
    """Return a metric per series: its mean over the steps of a round on the worst rank, as a median over rounds."""
    series = {s.name: s for r in m.rounds for done in r.ranks for s in done.series}
    found = {}
    for name, one in series.items():
        of_round = [[s for d in r.ranks for s in d.series if s.name == name and s.values] for r in m.rounds]
        pick = min if one.better == "higher" else max
        worst = [pick(math.fsum(s.values) / len(s.values) for s in ranks) for ranks in of_round if ranks]
        if not worst:
            found[name] = Metric.unavailable(one.unit, one.better, one.reason or "the probe gave no value")
            continue
        middle = median_interval([worst])
        found[name] = Metric(
            value=middle.value,
            unit=one.unit,
            better=one.better,
            n=middle.n,
            ci_low=middle.low,
            ci_high=middle.high,
            source=f"{one.source}; mean over a round's steps, worst rank, median over rounds",
        )
    return found
