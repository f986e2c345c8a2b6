"""What a check found in words, before it is laid out for a terminal, as Markdown or as JUnit."""

from __future__ import annotations

from collections import Counter

from parbench.checkresult import FAILING, Checked, CheckResult
from parbench.record import Metric
from parbench.report.words import DASH, amount, number, visible

HEADINGS = ("outcome", "cell", "metric", "baseline", "now", "change [interval]", "noise floor", "why")


def texts_of(one: Checked) -> tuple[str, ...]:
    """Return a line of the table under HEADINGS."""
    return (
        one.outcome,
        visible(one.cell, 80),
        visible(one.metric, 40),
        _value(one.old, one),
        _value(one.new, one),
        change(one),
        DASH if one.floor is None else f"{100 * one.floor:.1f} %",
        visible(one.why, 500),
    )


def change(one: Checked) -> str:
    """Return how far the new value is from the baseline's, in per cent of that."""
    if one.ratio is None:
        return DASH
    interval = "" if one.low is None or one.high is None else f" [{_percent(one.low)}, {_percent(one.high)}]"
    return f"{_percent(one.ratio)} %{interval}"


def sentence(one: Checked) -> str:
    """Return what is to be said of one metric in a line of a log."""
    parts = [f"{visible(one.metric, 40)} of {visible(one.cell, 80)}" if one.metric else visible(one.cell, 80)]
    if one.new is not None and one.old is not None:
        parts.append(f"{_value(one.old, one)} before, {_value(one.new, one)} now, {change(one)}")
    parts += [f"threshold {100 * one.threshold:.1f} %"] if one.threshold is not None else []
    parts += [visible(one.why, 500)] if one.why else []
    return "; ".join(parts)


def summary(result: CheckResult) -> str:
    """Return how many of each outcome there are."""
    counts = Counter(one.outcome for one in result.checked)
    verdict = "failed" if any(one.outcome in FAILING for one in result.checked) else "passed"
    return f"check {verdict}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _value(value: float | None, one: Checked) -> str:
    return amount(Metric(value=value, unit=one.unit, better=one.better))


def _percent(ratio: float) -> str:
    by = 100 * (ratio - 1)
    return f"{by:+.1f}" if abs(by) < 1000 else f"+{number(by)}"
