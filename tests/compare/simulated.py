"""Simulated launches and runs: rounds that follow each other, heavy tails, outliers, launches with two modes.

value of a round = 10 ms x slow-down x exp(launch + noise x (0.7 AR(1) + 0.7 t3)) + now and then half as much again
"""

import math

import numpy as np

from parbench.checking import check
from parbench.difference import Sample, difference
from parbench.history import History, HistoryCell, Series
from parbench.record import Environment
from parbench.verdict import verdict

# How launches (or runs) lie around what they measure, for a typical deviation of 1.
KINDS = ("normal", "heavy tails", "two modes", "rare mode", "outliers", "follow each other")
# Correlation of a round with the next, and the share of rounds that something interrupts.
_ROUNDS_FOLLOW, _INTERRUPTED = 0.6, 0.03


def launch_effects(rng, kind, count):
    """Return `count` deviations of launches, in order of time, of about 1."""
    match kind:
        case "normal":
            return rng.normal(size=count)
        case "heavy tails":
            return rng.standard_t(3, size=count) / math.sqrt(3)
        case "two modes":
            return rng.normal(size=count) / 4 + 2 * (rng.random(count) < 0.5)
        case "rare mode":
            return rng.normal(size=count) / 4 + 2.5 * (rng.random(count) < 0.15)
        case "outliers":
            return rng.normal(size=count) / 2 + 15 * (rng.random(count) < 0.05) * rng.exponential(size=count)
        case "follow each other":
            return follow(rng, 0.5, count)
    raise AssertionError(kind)


def follow(rng, correlation, count):
    """Return a stationary series in which each value resembles the one before."""
    found = np.empty(count)
    last = rng.normal()
    for k in range(count):
        last = correlation * last + math.sqrt(1 - correlation**2) * rng.normal()
        found[k] = last
    return found


def a_launch(rng, effect, rounds, noise, slow=1.0):
    """Return the rounds of one launch, (seconds, steps)."""
    wobble = 0.7 * follow(rng, _ROUNDS_FOLLOW, rounds) + 0.7 * rng.standard_t(3, size=rounds) / math.sqrt(3)
    interrupted = (rng.random(rounds) < _INTERRUPTED) * rng.exponential(0.5, size=rounds)
    seconds = 0.05 * slow * np.exp(effect + noise * wobble + interrupted)
    return [(float(s), 5.0) for s in seconds]


def compare_alarms(rng, kind, launches, *, noise=0.02, slow=1.0, rounds=8):
    """Return whether `parbench compare` says that the step time of as many launches a side has changed.

    Launches of both sides alternate, as `--against-head` measures them.
    """
    effects = noise * launch_effects(rng, kind, 2 * launches)
    old = Sample(launches=[a_launch(rng, e, rounds, noise) for e in effects[::2]])
    new = Sample(launches=[a_launch(rng, e, rounds, noise, slow) for e in effects[1::2]])
    found = difference(old, new)
    change = (found.ratio or 1) - 1
    return verdict("step_time_s", found, unit="s", better="lower", p=found.p, change=change)[0] in ("better", "worse")


def check_alarms(rng, kind, base, fresh, *, noise=0.02, slow=1.0):
    """Return whether `parbench check` fails `fresh` runs that come after a baseline of `base`."""
    values = 0.01 * np.exp(noise * launch_effects(rng, kind, base + fresh))
    values[base:] *= slow
    old, new = (a_history(name, part) for name, part in (("old", values[:base]), ("new", values[base:])))
    (one,) = check(old, new).checked
    return one.outcome in ("regression", "improvement")


def a_history(name, values):
    """Return the history of one cell whose runs had these step times."""
    runs = tuple(f"{name}{k}" for k in range(len(values)))
    series = Series(unit="s", better="lower", runs=runs, values=tuple(map(float, values)))
    cell = HistoryCell(name="cell", passed=len(values), series={"step_time_s": series})
    environment = Environment(fingerprint="machine", software="s", facts={})
    return History(environment=environment, runs=runs, cells={"cell": cell}, path=name)
