"""The LaTeX of a report: a table (booktabs) per workload, ready to be put into a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from parbench.comparable import grouped
from parbench.metrics import Cell
from parbench.record import Metric
from parbench.report.rows import group_name, machine_of, step_time
from parbench.report.sources import Source
from parbench.report.words import DASH, SIGNS, amount, number, scale, visible

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{EN DASH}": "--",
    "\N{MULTIPLICATION SIGN}": r"\texttimes{}",
    "\N{MICRO SIGN}": r"\textmu{}",
}
_COLUMNS = ("strategy", "ranks", "step time", "95 % interval", "throughput", "peak memory", "held-out accuracy")


def latex(text: str) -> str:
    """Return text that LaTeX sets as it is: no command, no comment, no formula; other than ASCII is spelled out."""
    return "".join(_SPECIAL.get(char, char if char.isascii() else f"U+{ord(char):04X}") for char in visible(text, 200))


def report_latex(source: Source) -> str:
    r"""Return the tables; `\usepackage{booktabs,textcomp}` is all they need."""
    return "".join(f"{line}\n" for line in _lines(source))


def _lines(source: Source) -> Iterator[str]:
    yield "% Made by parbench; needs \\usepackage{booktabs,textcomp}."
    by_id = {record.id: record for record in source.records}
    for group in grouped(source.cells):
        last = by_id[group[0].run_ids[-1]]
        commit = str(last.environment.facts.get("commit") or "unknown")[:10]
        yield r"\begin{table}"
        told = f"{group_name(group[0], source.cells)}: medians of step time. {machine_of(last)}, commit {commit}."
        yield rf"\caption{{{latex(told)}}}"
        yield rf"\label{{tab:{_key(group_name(group[0], source.cells))}}}"
        yield rf"\begin{{tabular}}{{l{'r' * (len(_COLUMNS) - 1)}}}"
        yield r"\toprule"
        yield _row(_COLUMNS)
        yield r"\midrule"
        yield from (_row(_texts(cell)) for cell in group)
        yield r"\bottomrule"
        yield r"\end{tabular}"
        yield r"\end{table}"


def _texts(cell: Cell) -> Sequence[str]:
    time = step_time(cell)
    rate = cell.metrics.get("tokens_per_s")
    if rate is None or rate.value is None:
        rate = cell.metrics.get("samples_per_s")
    accuracy = cell.metrics.get("held_out_accuracy")
    return (
        cell.strategy,
        str(cell.spec.world_size),
        _amount(time) if cell.launches else "/".join(dict.fromkeys(cell.statuses)),
        _interval(time),
        _amount(rate),
        _amount(cell.metrics.get("peak_memory_bytes")),
        DASH if accuracy is None or accuracy.value is None else f"{number(100 * accuracy.value)} %",
    )


def _amount(metric: Metric | None) -> str:
    return DASH if metric is None or metric.value is None else amount(metric) + SIGNS.get(metric.quality, "")


def _interval(metric: Metric) -> str:
    if metric.value is None or metric.ci_low is None or metric.ci_high is None:
        return DASH
    factor, unit = scale(metric.value, metric.unit)
    return f"{number(metric.ci_low * factor)} to {number(metric.ci_high * factor)} {unit}"


def _row(texts: Sequence[str]) -> str:
    return " & ".join(map(latex, texts)) + r" \\"


def _key(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60]
